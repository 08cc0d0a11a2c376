// The cases of tests/interop/group_cases.py.
package main

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"headrace/interop/plan"
)

func settled() bool { return true }

func (t *task) cooperative() (plan.Observed, error) {
	seen := &plan.Set{}
	balancer := kgo.Balancers(kgo.CooperativeStickyBalancer())
	var joined []*member
	var members []plan.Member
	join := func() error {
		member, err := t.join(seen, balancer)
		if err == nil {
			joined = append(joined, member)
			members = append(members, member)
		}
		return err
	}
	defer func() {
		for _, member := range members {
			member.Leave()
		}
	}()
	if err := errors.Join(join(), join()); err != nil {
		return nil, err
	}
	two, err := plan.Settle(members, settled)
	if err != nil {
		return nil, err
	}
	joined[0].takeRevoked()
	joined[1].takeRevoked()
	if err := join(); err != nil {
		return nil, err
	}
	three, err := plan.Settle(members, settled)
	revoked := [][]int32{joined[0].takeRevoked(), joined[1].takeRevoked()}
	return plan.Observed{"two": two, "three": three, "revoked": revoked}, err
}

// Range is an eager balancer: a member that takes part in a rebalance loses all that it has.
func (t *task) static() (plan.Observed, error) {
	seen := &plan.Set{}
	balancer := kgo.Balancers(kgo.RangeBalancer())
	first, err := t.join(seen, balancer, kgo.InstanceID("one"))
	if err != nil {
		return nil, err
	}
	defer first.Leave()
	second, err := t.join(seen, balancer, kgo.InstanceID("two"))
	if err != nil {
		return nil, err
	}
	defer second.Leave()
	before, err := plan.Settle([]plan.Member{first, second}, settled)
	if err != nil {
		return nil, err
	}
	first.takeRevoked()
	second.Leave()
	again, err := t.join(seen, balancer, kgo.InstanceID("two"))
	if err != nil {
		return nil, err
	}
	defer again.Leave()
	after, err := plan.Settle([]plan.Member{first, again}, settled)
	rebalances := len(first.takeRevoked())
	return plan.Observed{"before": before, "after": after, "rebalances": rebalances}, err
}

func (t *task) staticFenced() (plan.Observed, error) {
	options := t.inGroup(kgo.InstanceID("one"), kgo.HeartbeatInterval(200*time.Millisecond))
	first, err := t.client(options...)
	if err != nil {
		return nil, err
	}
	defer first.Close()
	if _, err := poll(t.ctx, first); err != nil {
		return nil, err
	}
	second, err := t.client(options...)
	if err != nil {
		return nil, err
	}
	defer second.Close()
	if _, err := poll(t.ctx, second); err != nil {
		return nil, err
	}
	_, err = poll(t.ctx, first)
	if errors.Is(err, kerr.FencedInstanceID) {
		return plan.Observed{"fenced": true}, nil
	}
	return plan.Observed{"fenced": false}, err
}

func (t *task) regex() (plan.Observed, error) {
	client, err := t.byPattern()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	values, err := next(t.ctx, client, 3)
	return plan.Observed{"values": values}, err
}

func (t *task) regexNewTopic() (plan.Observed, error) {
	client, err := t.byPattern()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	values, err := next(t.ctx, client, 3)
	if err != nil {
		return nil, err
	}
	later := &kgo.Record{Topic: t.topic + "-out", Value: []byte("later")}
	if err := t.produce([]*kgo.Record{later}, kgo.AllowAutoTopicCreation()); err != nil {
		return nil, err
	}
	found, err := next(t.ctx, client, 1)
	return plan.Observed{"values": append(values, found...)}, err
}

func (t *task) byPattern() (*kgo.Client, error) {
	return t.client(
		kgo.ConsumerGroup(t.topic), kgo.ConsumeTopics("^"+t.topic+".*"), kgo.ConsumeRegex(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
		// A fetch that waits for the topics known so far would keep the new one waiting, too.
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.MetadataMaxAge(200*time.Millisecond), kgo.MetadataMinAge(100*time.Millisecond),
	)
}

func next(ctx context.Context, client *kgo.Client, count int) ([]string, error) {
	var values []string
	for len(values) < count {
		row, err := poll(ctx, client)
		if err != nil {
			return nil, err
		}
		values = append(values, string(row.Value))
	}
	return values, nil
}
