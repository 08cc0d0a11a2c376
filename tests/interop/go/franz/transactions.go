// The cases of tests/interop/transaction_cases.py; the transactional id is the topic's name.
package main

import (
	"errors"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"headrace/interop/plan"
)

func (t *task) commit() (plan.Observed, error) {
	producer, err := t.transactional()
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	if err := t.begin(producer, "a", "b"); err != nil {
		return nil, err
	}
	plain := &kgo.Record{Value: []byte("plain"), Partition: 1}
	if err := t.produce([]*kgo.Record{plain}, byHand); err != nil {
		return nil, err
	}
	open, err := t.upTo("plain", t.topic, kgo.ReadCommitted(), 0, 1)
	if err != nil {
		return nil, err
	}
	uncommitted, err := t.upTo("b", t.topic, kgo.ReadUncommitted(), 0)
	if err != nil {
		return nil, err
	}
	if err := producer.EndTransaction(t.ctx, kgo.TryCommit); err != nil {
		return nil, err
	}
	committed, err := t.upTo("b", t.topic, kgo.ReadCommitted(), 0)
	return plan.Observed{"open": open, "uncommitted": uncommitted, "committed": committed}, err
}

func (t *task) abort() (plan.Observed, error) {
	producer, err := t.transactional()
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	if err := t.begin(producer, "a", "b"); err != nil {
		return nil, err
	}
	if err := producer.EndTransaction(t.ctx, kgo.TryAbort); err != nil {
		return nil, err
	}
	if err := t.transaction(producer, "last"); err != nil {
		return nil, err
	}
	return t.both()
}

func (t *task) zombie() (plan.Observed, error) {
	first, err := t.transactional()
	if err != nil {
		return nil, err
	}
	defer first.Close()
	if err := t.begin(first, "zombie"); err != nil {
		return nil, err
	}
	second, err := t.transactional()
	if err != nil {
		return nil, err
	}
	defer second.Close()
	if err := t.transaction(second, "new"); err != nil {
		return nil, err
	}
	err = first.ProduceSync(t.ctx, kgo.StringRecord("late")).FirstErr()
	if err == nil {
		err = first.EndTransaction(t.ctx, kgo.TryCommit)
	}
	fenced := errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch)
	if err := t.transaction(second, "last"); err != nil {
		return nil, err
	}
	observed, err := t.both()
	if err != nil {
		return nil, err
	}
	observed["fenced"] = fenced
	return observed, nil
}

// The session sends the offsets when it commits, and goes back to the committed ones on an abort.
func (t *task) consumeProcessProduce() (plan.Observed, error) {
	observed := plan.Observed{}
	first, err := t.session()
	if err != nil {
		return nil, err
	}
	defer first.Close()
	if _, err := t.copy(first); err != nil {
		return nil, err
	}
	if observed["while_open"], err = t.committed(); err != nil {
		return nil, err
	}
	if _, err := first.End(t.ctx, kgo.TryAbort); err != nil {
		return nil, err
	}
	if observed["after_abort"], err = t.committed(); err != nil {
		return nil, err
	}
	if _, err := t.copy(first); err != nil {
		return nil, err
	}
	if err := t.end(first); err != nil {
		return nil, err
	}
	if observed["after_commit"], err = plan.Settled(t.committed, 5); err != nil {
		return nil, err
	}
	first.Close()
	second, err := t.session()
	if err != nil {
		return nil, err
	}
	defer second.Close()
	if observed["resumed_at"], err = t.copy(second); err != nil {
		return nil, err
	}
	if err := t.end(second); err != nil {
		return nil, err
	}
	if observed["at_end"], err = plan.Settled(t.committed, 10); err != nil {
		return nil, err
	}
	observed["outputs"], err = t.upTo("0-9", t.topic+"-out", kgo.ReadCommitted(), 0)
	return observed, err
}

func (t *task) epochs() (plan.Observed, error) {
	producer, err := t.transactional()
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	for _, value := range []string{"one", "two", "three"} {
		if err := t.transaction(producer, value); err != nil {
			return nil, err
		}
	}
	values, err := t.upTo("three", t.topic, kgo.ReadCommitted(), 0)
	return plan.Observed{"values": values}, err
}

var byHand = kgo.RecordPartitioner(kgo.ManualPartitioner())

func (t *task) transactional() (*kgo.Client, error) {
	return t.client(
		kgo.TransactionalID(t.topic), kgo.DefaultProduceTopic(t.topic), byHand,
	)
}

func (t *task) begin(producer *kgo.Client, values ...string) error {
	if err := producer.BeginTransaction(); err != nil {
		return err
	}
	var records []*kgo.Record
	for _, value := range values {
		records = append(records, kgo.StringRecord(value))
	}
	return producer.ProduceSync(t.ctx, records...).FirstErr()
}

func (t *task) transaction(producer *kgo.Client, value string) error {
	if err := t.begin(producer, value); err != nil {
		return err
	}
	return producer.EndTransaction(t.ctx, kgo.TryCommit)
}

func (t *task) session() (*kgo.GroupTransactSession, error) {
	return kgo.NewGroupTransactSession(t.options(t.inGroup(
		kgo.TransactionalID(t.topic), kgo.DefaultProduceTopic(t.topic+"-out"), byHand,
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
	)...)...)
}

// copy takes five inputs to the output in a transaction that is left open; the first's offset.
func (t *task) copy(session *kgo.GroupTransactSession) (int64, error) {
	if err := session.Begin(); err != nil {
		return 0, err
	}
	first := int64(-1)
	for range 5 {
		row, err := poll(t.ctx, session.Client())
		if err != nil {
			return 0, err
		}
		if first < 0 {
			first = row.Offset
		}
		output := &kgo.Record{Value: row.Value}
		if err := session.ProduceSync(t.ctx, output).FirstErr(); err != nil {
			return 0, err
		}
	}
	return first, nil
}

func (t *task) end(session *kgo.GroupTransactSession) error {
	committed, err := session.End(t.ctx, kgo.TryCommit)
	if err == nil && !committed {
		err = errors.New("the transaction was aborted instead")
	}
	return err
}

// committed is the group's offset, nil where it has none.
func (t *task) committed() (any, error) {
	return admin(t, func(client *kadm.Client) (any, error) {
		offsets, err := client.FetchOffsets(t.ctx, t.topic)
		if err != nil {
			return nil, err
		}
		if at, ok := offsets.Lookup(t.topic, 0); ok && at.At >= 0 {
			return int(at.At), nil
		}
		return nil, nil
	})
}

func (t *task) both() (plan.Observed, error) {
	committed, err := t.upTo("last", t.topic, kgo.ReadCommitted(), 0)
	if err != nil {
		return nil, err
	}
	uncommitted, err := t.upTo("last", t.topic, kgo.ReadUncommitted(), 0)
	return plan.Observed{"committed": committed, "uncommitted": uncommitted}, err
}

// upTo reads all values up to this one, as a consumer of this isolation gets them.
func (t *task) upTo(last, topic string, level kgo.IsolationLevel, partitions ...int32) ([]string, error) {
	starts := map[int32]kgo.Offset{}
	for _, partition := range partitions {
		starts[partition] = kgo.NewOffset().AtStart()
	}
	client, err := t.client(
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: starts}),
		kgo.FetchIsolationLevel(level),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var values []string
	for !slices.Contains(values, last) {
		row, err := poll(t.ctx, client)
		if err != nil {
			return nil, err
		}
		values = append(values, string(row.Value))
	}
	return values, nil
}
