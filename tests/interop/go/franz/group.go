package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"headrace/interop/plan"
)

func (t *task) group() (plan.Observed, error) {
	seen := &plan.Set{}
	var members []plan.Member
	for range 3 {
		joined, err := t.join(seen)
		if err != nil {
			return nil, err
		}
		members = append(members, joined)
	}
	return plan.Group(members, seen)
}

type member struct {
	client   *kgo.Client
	lock     sync.Mutex
	assigned []int32
	revoked  []int32
	left     sync.Once
}

func (t *task) join(seen *plan.Set, options ...kgo.Opt) (*member, error) {
	m := &member{}
	gained := func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
		m.lock.Lock()
		defer m.lock.Unlock()
		m.assigned = append(m.assigned, partitions[t.topic]...)
	}
	lost := func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
		m.lock.Lock()
		defer m.lock.Unlock()
		m.revoked = append(m.revoked, partitions[t.topic]...)
		m.assigned = slices.DeleteFunc(m.assigned, func(partition int32) bool {
			return slices.Contains(partitions[t.topic], partition)
		})
	}
	var err error
	m.client, err = t.client(append(
		options,
		kgo.ConsumerGroup(t.topic), kgo.ConsumeTopics(t.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.HeartbeatInterval(200*time.Millisecond),
		kgo.OnPartitionsAssigned(gained), kgo.OnPartitionsRevoked(lost), kgo.OnPartitionsLost(lost),
	)...)
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			fetches := m.client.PollFetches(context.Background())
			if fetches.IsClientClosed() {
				return
			}
			fetches.EachRecord(func(record *kgo.Record) { seen.Add(string(record.Value)) })
		}
	}()
	return m, nil
}

func (m *member) Assigned() []int32 {
	m.lock.Lock()
	defer m.lock.Unlock()
	return slices.Clone(m.assigned)
}

// takeRevoked gives what was taken from the member since it was last asked.
func (m *member) takeRevoked() []int32 {
	m.lock.Lock()
	defer m.lock.Unlock()
	revoked := append([]int32{}, m.revoked...)
	m.revoked = nil
	return revoked
}

func (m *member) Leave() {
	m.left.Do(m.client.Close)
}
