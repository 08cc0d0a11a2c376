// The cases of tests/interop/cases.py with kafka-go.
package main

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"

	"headrace/interop/plan"
)

var acksLevels = map[string]kafka.RequiredAcks{
	"acks 0":   kafka.RequireNone,
	"acks 1":   kafka.RequireOne,
	"acks all": kafka.RequireAll,
}

var codecs = map[string]kafka.Compression{
	"none":   0,
	"gzip":   kafka.Gzip,
	"snappy": kafka.Snappy,
	"lz4":    kafka.Lz4,
	"zstd":   kafka.Zstd,
}

func main() {
	plan.Run(func(p *plan.Plan, name, topic string) (plan.Observed, error) {
		ctx, cancel := context.WithTimeout(context.Background(), 3*plan.WaitMax)
		defer cancel()
		t := &task{ctx, p, topic, &kafka.Client{Addr: kafka.TCP(p.Bootstrap)}}
		if codec, ok := strings.CutPrefix(name, "codec-"); ok {
			return t.codec(codecs[codec])
		}
		switch name {
		case "acks":
			return t.acks()
		case "auto-create":
			return t.autoCreate()
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
		}
		return nil, fmt.Errorf("no such case: %s", name)
	})
}

type task struct {
	ctx    context.Context
	plan   *plan.Plan
	topic  string
	client *kafka.Client
}

func (t *task) codec(codec kafka.Compression) (plan.Observed, error) {
	var sent []kafka.Message
	for _, record := range t.plan.Records {
		message := kafka.Message{
			Key: record.Key, Value: record.Value, Time: time.UnixMilli(record.Timestamp),
		}
		for _, header := range record.Headers {
			message.Headers = append(message.Headers, kafka.Header{Key: header.Name, Value: header.Value})
		}
		sent = append(sent, message)
	}
	writer := t.writer()
	writer.Compression = codec
	if err := t.write(writer, sent...); err != nil {
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
			Timestamp: row.Time.UnixMilli(), Offset: row.Offset,
		})
	}
	return plan.Observed{"records": got}, nil
}

func (t *task) acks() (plan.Observed, error) {
	for value, level := range acksLevels {
		writer := t.writer()
		writer.RequiredAcks = level
		if err := t.write(writer, kafka.Message{Value: []byte(value)}); err != nil {
			return nil, err
		}
	}
	return t.values(3)
}

func (t *task) autoCreate() (plan.Observed, error) {
	writer := t.writer()
	writer.AllowAutoTopicCreation = true
	for t.ctx.Err() == nil {
		// The client gives this error to its user while the topic is being made.
		err := writer.WriteMessages(t.ctx, kafka.Message{Value: []byte("made by use")})
		if err == nil {
			break
		}
		if !errors.Is(err, kafka.UnknownTopicOrPartition) {
			return nil, err
		}
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	return t.values(1)
}

func (t *task) refusal(value string) (plan.Observed, error) {
	return refused(t.write(t.writer(), kafka.Message{Value: []byte(value)}))
}

func (t *task) seek() (plan.Observed, error) {
	reader := t.reader()
	defer reader.Close()
	to := func(offset int64) (int64, error) {
		if err := reader.SetOffset(offset); err != nil {
			return 0, err
		}
		message, err := reader.ReadMessage(t.ctx)
		return message.Offset, err
	}
	sought, err := to(7)
	if err != nil {
		return nil, err
	}
	beginning, err := to(kafka.FirstOffset)
	if err != nil {
		return nil, err
	}
	leader, err := kafka.DialLeader(t.ctx, "tcp", t.plan.Bootstrap, t.topic, 0)
	if err != nil {
		return nil, err
	}
	defer leader.Close()
	end, err := leader.ReadLastOffset()
	return plan.Observed{"seek": sought, "beginning": beginning, "end": end}, err
}

func (t *task) offsetsForTimes() (plan.Observed, error) {
	found := plan.Observed{}
	for name, at := range t.plan.Times() {
		request := []kafka.OffsetRequest{kafka.TimeOffsetOf(0, time.UnixMilli(at))}
		listed, err := t.client.ListOffsets(t.ctx, &kafka.ListOffsetsRequest{
			Topics: map[string][]kafka.OffsetRequest{t.topic: request},
		})
		if err != nil {
			return nil, err
		}
		found[name] = nil
		for offset := range listed.Topics[t.topic][0].Offsets {
			if offset >= 0 {
				found[name] = offset
			}
		}
	}
	return found, nil
}

func (t *task) commitResume() (plan.Observed, error) {
	inGroup := kafka.ReaderConfig{
		Brokers: []string{t.plan.Bootstrap}, Topic: t.topic, GroupID: t.topic,
		StartOffset: kafka.FirstOffset, MaxWait: 100 * time.Millisecond,
	}
	first := kafka.NewReader(inGroup)
	defer first.Close()
	for range 5 {
		message, err := first.FetchMessage(t.ctx)
		if err != nil {
			return nil, err
		}
		if err := first.CommitMessages(t.ctx, message); err != nil {
			return nil, err
		}
	}
	if err := first.Close(); err != nil {
		return nil, err
	}
	fetched, err := t.client.OffsetFetch(t.ctx, &kafka.OffsetFetchRequest{
		GroupID: t.topic, Topics: map[string][]int{t.topic: {0}},
	})
	if err != nil {
		return nil, err
	}
	second := kafka.NewReader(inGroup)
	defer second.Close()
	message, err := second.FetchMessage(t.ctx)
	committed := fetched.Topics[t.topic][0].CommittedOffset
	return plan.Observed{"committed": committed, "resumed_at": message.Offset}, err
}

func (t *task) writer() *kafka.Writer {
	return &kafka.Writer{
		Addr: kafka.TCP(t.plan.Bootstrap), Topic: t.topic, BatchTimeout: 10 * time.Millisecond,
		RequiredAcks: kafka.RequireAll, MaxAttempts: 5,
	}
}

func (t *task) write(writer *kafka.Writer, messages ...kafka.Message) error {
	return errors.Join(writer.WriteMessages(t.ctx, messages...), writer.Close())
}

func (t *task) reader() *kafka.Reader {
	return kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{t.plan.Bootstrap}, Topic: t.topic, MaxWait: 100 * time.Millisecond,
	})
}

func (t *task) read(count int) ([]kafka.Message, error) {
	reader := t.reader()
	defer reader.Close()
	var rows []kafka.Message
	for len(rows) < count {
		ctx, cancel := context.WithTimeout(t.ctx, plan.WaitMax)
		row, err := reader.ReadMessage(ctx)
		cancel()
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

func refused(err error) (plan.Observed, error) {
	var all kafka.WriteErrors
	if errors.As(err, &all) {
		err = all[0]
	}
	var refusal kafka.Error
	if errors.As(err, &refusal) {
		return plan.Observed{"error": int(refusal)}, nil
	}
	return plan.Observed{"error": 0}, err
}
