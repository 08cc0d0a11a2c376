// The cases of tests/interop with franz-go.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"headrace/interop/plan"
)

var acksLevels = map[string]kgo.Acks{
	"acks 0":   kgo.NoAck(),
	"acks 1":   kgo.LeaderAck(),
	"acks all": kgo.AllISRAcks(),
}

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

func main() {
	plan.Run(func(p *plan.Plan, name, topic string) (plan.Observed, error) {
		ctx, cancel := context.WithTimeout(context.Background(), 3*plan.WaitMax)
		defer cancel()
		t := &task{ctx, p, topic, slices.Contains(os.Args, "older")}
		if codec, ok := strings.CutPrefix(name, "codec-"); ok {
			return t.codec(codecs[codec])
		}
		switch name {
		case "acks":
			return t.acks()
		case "idempotent":
			return t.idempotent()
		case "auto-create":
			return t.autoCreate()
		case "log-append-time":
			return t.logAppendTime()
		case "too-large":
			return t.refusal(strings.Repeat("x", 5000))
		case "keyless-on-compacted":
			return t.refusal("x")
		case "seek":
			return t.seek()
		case "offsets-for-times":
			return t.offsetsForTimes()
		case "commit-resume":
			return t.commitResume()
		case "group":
			return t.group()
		case "create-delete-topic":
			return t.createDeleteTopic()
		case "configs":
			return t.configs()
		case "create-partitions":
			return t.createPartitions()
		case "delete-records":
			return t.deleteRecords()
		case "cooperative":
			return t.cooperative()
		case "static":
			return t.static()
		case "static-fenced":
			return t.staticFenced()
		case "regex":
			return t.regex()
		case "regex-new-topic":
			return t.regexNewTopic()
		case "commit":
			return t.commit()
		case "abort":
			return t.abort()
		case "zombie":
			return t.zombie()
		case "consume-process-produce":
			return t.consumeProcessProduce()
		case "epoch-kept", "epoch-bumped":
			return t.epochs()
		}
		return nil, fmt.Errorf("no such case: %s", name)
	})
}

type task struct {
	ctx   context.Context
	plan  *plan.Plan
	topic string
	older bool // speak as a client of Kafka 3.9 does
}

func (t *task) codec(codec kgo.CompressionCodec) (plan.Observed, error) {
	var sent []*kgo.Record
	for _, record := range t.plan.Records {
		row := &kgo.Record{
			Key: record.Key, Value: record.Value, Timestamp: time.UnixMilli(record.Timestamp),
		}
		for _, header := range record.Headers {
			row.Headers = append(row.Headers, kgo.RecordHeader{Key: header.Name, Value: header.Value})
		}
		sent = append(sent, row)
	}
	if err := t.produce(sent, kgo.ProducerBatchCompression(codec)); err != nil {
		return nil, err
	}
	rows, err := t.read(len(sent))
	if err != nil {
		return nil, err
	}
	var got []plan.Record
	for _, row := range rows {
		headers := []plan.Header{}
		for _, header := range row.Headers {
			headers = append(headers, plan.Header{Name: header.Key, Value: header.Value})
		}
		got = append(got, plan.Record{
			Key: row.Key, Value: row.Value, Headers: headers,
			Timestamp: row.Timestamp.UnixMilli(), Offset: row.Offset,
		})
	}
	return plan.Observed{"records": got}, nil
}

func (t *task) acks() (plan.Observed, error) {
	for value, level := range acksLevels {
		options := []kgo.Opt{kgo.RequiredAcks(level), kgo.DisableIdempotentWrite()}
		if err := t.produce([]*kgo.Record{kgo.StringRecord(value)}, options...); err != nil {
			return nil, err
		}
	}
	return t.values(3)
}

func (t *task) idempotent() (plan.Observed, error) {
	var sent []*kgo.Record
	for number := range 100 {
		sent = append(sent, kgo.StringRecord(fmt.Sprint(number)))
	}
	if err := t.produce(sent, kgo.ProducerBatchMaxBytes(1024)); err != nil {
		return nil, err
	}
	var offsets []int64
	for _, record := range sent {
		offsets = append(offsets, record.Offset)
	}
	return plan.Observed{"offsets": offsets}, nil
}

func (t *task) autoCreate() (plan.Observed, error) {
	sent := []*kgo.Record{kgo.StringRecord("made by use")}
	if err := t.produce(sent, kgo.AllowAutoTopicCreation()); err != nil {
		return nil, err
	}
	return t.values(1)
}

func (t *task) logAppendTime() (plan.Observed, error) {
	late := &kgo.Record{Value: []byte("late"), Timestamp: time.UnixMilli(t.plan.SeededAt)}
	if err := t.produce([]*kgo.Record{late}); err != nil {
		return nil, err
	}
	rows, err := t.read(1)
	if err != nil {
		return nil, err
	}
	return plan.Observed{"timestamp": rows[0].Timestamp.UnixMilli()}, nil
}

func (t *task) refusal(value string) (plan.Observed, error) {
	plain := kgo.ProducerBatchCompression(kgo.NoCompression())
	return refused(t.produce([]*kgo.Record{kgo.StringRecord(value)}, plain))
}

func (t *task) seek() (plan.Observed, error) {
	client, err := t.client(t.from(kgo.NewOffset().At(15)))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	if _, err := poll(t.ctx, client); err != nil {
		return nil, err
	}
	to := func(offset int64) (int64, error) {
		at := map[int32]kgo.EpochOffset{0: {Epoch: -1, Offset: offset}}
		client.SetOffsets(map[string]map[int32]kgo.EpochOffset{t.topic: at})
		row, err := poll(t.ctx, client)
		if err != nil {
			return 0, err
		}
		return row.Offset, nil
	}
	sought, err := to(7)
	if err != nil {
		return nil, err
	}
	beginning, err := to(0)
	if err != nil {
		return nil, err
	}
	ends, err := kadm.NewClient(client).ListEndOffsets(t.ctx, t.topic)
	if err != nil {
		return nil, err
	}
	end, _ := ends.Lookup(t.topic, 0)
	return plan.Observed{"seek": sought, "beginning": beginning, "end": end.Offset}, nil
}

// The admin client answers the end of the partition for a time after its last record; that answer
// has no timestamp.
func (t *task) offsetsForTimes() (plan.Observed, error) {
	found := plan.Observed{}
	for name, at := range t.plan.Times() {
		listed, err := admin(t, func(client *kadm.Client) (kadm.ListedOffsets, error) {
			return client.ListOffsetsAfterMilli(t.ctx, at, t.topic)
		})
		if err != nil {
			return nil, err
		}
		found[name] = nil
		if row, ok := listed.Lookup(t.topic, 0); ok && row.Timestamp >= 0 {
			found[name] = row.Offset
		}
	}
	return found, nil
}

func (t *task) commitResume() (plan.Observed, error) {
	first, err := t.client(t.inGroup()...)
	if err != nil {
		return nil, err
	}
	defer first.Close()
	for range 5 {
		if _, err := poll(t.ctx, first); err != nil {
			return nil, err
		}
	}
	commit := kadm.Offsets{}
	commit.Add(kadm.Offset{Topic: t.topic, At: 5, LeaderEpoch: -1, Metadata: "a note"})
	first.Close()
	committed, err := admin(t, func(client *kadm.Client) (kadm.OffsetResponses, error) {
		if err := client.CommitAllOffsets(t.ctx, t.topic, commit); err != nil {
			return nil, err
		}
		return client.FetchOffsets(t.ctx, t.topic)
	})
	if err != nil {
		return nil, err
	}
	second, err := t.client(t.inGroup()...)
	if err != nil {
		return nil, err
	}
	defer second.Close()
	row, err := poll(t.ctx, second)
	if err != nil {
		return nil, err
	}
	at, _ := committed.Lookup(t.topic, 0)
	return plan.Observed{"committed": at.At, "metadata": at.Metadata, "resumed_at": row.Offset}, nil
}

func (t *task) createDeleteTopic() (plan.Observed, error) {
	create := func() error {
		_, err := admin(t, func(client *kadm.Client) (kadm.CreateTopicResponse, error) {
			return client.CreateTopic(t.ctx, 3, 1, nil, t.topic)
		})
		return err
	}
	if err := create(); err != nil {
		return nil, err
	}
	refusal, err := refused(create())
	if err != nil {
		return nil, err
	}
	partitions, err := plan.Settled(t.partitions, 3)
	if err != nil {
		return nil, err
	}
	_, err = admin(t, func(client *kadm.Client) (kadm.DeleteTopicResponse, error) {
		return client.DeleteTopic(t.ctx, t.topic)
	})
	if err != nil {
		return nil, err
	}
	after, err := plan.Settled(t.partitions, 0)
	return plan.Observed{
		"partitions":          partitions,
		"again":               refusal["error"],
		"listed":              partitions > 0,
		"listed_after_delete": after > 0,
	}, err
}

// partitions asks with a new client, since each keeps the metadata that it has seen for a while.
func (t *task) partitions() (int, error) {
	topics, err := admin(t, func(client *kadm.Client) (kadm.TopicDetails, error) {
		return client.ListTopics(t.ctx)
	})
	return len(topics[t.topic].Partitions), err
}

func (t *task) configs() (plan.Observed, error) {
	return admin(t, func(client *kadm.Client) (plan.Observed, error) {
		retention := func() (string, error) {
			described, err := client.DescribeTopicConfigs(t.ctx, t.topic)
			if err != nil {
				return "", err
			}
			for _, row := range described[0].Configs {
				if row.Key == "retention.ms" {
					return row.MaybeValue(), nil
				}
			}
			return "", described[0].Err
		}
		before, err := retention()
		if err != nil {
			return nil, err
		}
		value := "7200000"
		change := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &value}}
		altered, err := client.AlterTopicConfigs(t.ctx, change, t.topic)
		if err != nil || altered[0].Err != nil {
			return nil, errors.Join(err, altered[0].Err)
		}
		after, err := plan.Settled(retention, "7200000")
		return plan.Observed{"default": before, "altered": after}, err
	})
}

func (t *task) createPartitions() (plan.Observed, error) {
	return admin(t, func(client *kadm.Client) (plan.Observed, error) {
		made, err := client.UpdatePartitions(t.ctx, 3, t.topic)
		if err != nil || made.Error() != nil {
			return nil, errors.Join(err, made.Error())
		}
		partitions, err := plan.Settled(t.partitions, 3)
		return plan.Observed{"partitions": partitions}, err
	})
}

func (t *task) deleteRecords() (plan.Observed, error) {
	return admin(t, func(client *kadm.Client) (plan.Observed, error) {
		upto := kadm.Offsets{}
		upto.Add(kadm.Offset{Topic: t.topic, At: 5})
		deleted, err := client.DeleteRecords(t.ctx, upto)
		if err != nil {
			return nil, err
		}
		starts, err := client.ListStartOffsets(t.ctx, t.topic)
		if err != nil {
			return nil, err
		}
		low, _ := deleted.Lookup(t.topic, 0)
		start, _ := starts.Lookup(t.topic, 0)
		return plan.Observed{"low_watermark": low.LowWatermark, "earliest": start.Offset}, low.Err
	})
}

func (t *task) options(options ...kgo.Opt) []kgo.Opt {
	if t.older {
		options = append(options, kgo.MaxVersions(kversion.V3_9_0()))
	}
	return append(options, kgo.SeedBrokers(t.plan.Bootstrap))
}

// inGroup makes a client a member of the case's group that commits nothing by itself.
func (t *task) inGroup(options ...kgo.Opt) []kgo.Opt {
	return append(
		options,
		kgo.ConsumerGroup(t.topic), kgo.ConsumeTopics(t.topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
}

func (t *task) client(options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(t.options(options...)...)
}

func admin[T any](t *task, use func(*kadm.Client) (T, error)) (T, error) {
	client, err := t.client()
	if err != nil {
		var none T
		return none, err
	}
	defer client.Close()
	return use(kadm.NewClient(client))
}

func (t *task) produce(records []*kgo.Record, options ...kgo.Opt) error {
	options = append(options, kgo.DefaultProduceTopic(t.topic))
	client, err := t.client(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	return client.ProduceSync(t.ctx, records...).FirstErr()
}

func (t *task) from(offset kgo.Offset) kgo.Opt {
	return kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{t.topic: {0: offset}})
}

func (t *task) read(count int) ([]*kgo.Record, error) {
	client, err := t.client(t.from(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var rows []*kgo.Record
	for len(rows) < count {
		row, err := poll(t.ctx, client)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func (t *task) values(count int) (plan.Observed, error) {
	rows, err := t.read(count)
	var values []string
	for _, row := range rows {
		values = append(values, string(row.Value))
	}
	sort.Strings(values)
	return plan.Observed{"values": values}, err
}

func poll(ctx context.Context, client *kgo.Client) (*kgo.Record, error) {
	limited, cancel := context.WithTimeout(ctx, plan.WaitMax)
	defer cancel()
	fetches := client.PollRecords(limited, 1)
	if err := fetches.Err(); err != nil {
		return nil, err
	}
	return fetches.Records()[0], nil
}

func refused(err error) (plan.Observed, error) {
	var refusal *kerr.Error
	if errors.As(err, &refusal) {
		return plan.Observed{"error": refusal.Code}, nil
	}
	return plan.Observed{"error": 0}, err
}
