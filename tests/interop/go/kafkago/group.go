package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"

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
	group    *kafka.ConsumerGroup
	lock     sync.Mutex
	assigned []int32
	left     sync.Once
}

func (t *task) join(seen *plan.Set) (*member, error) {
	group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: t.topic, Brokers: []string{t.plan.Bootstrap}, Topics: []string{t.topic},
		StartOffset: kafka.FirstOffset, HeartbeatInterval: 200 * time.Millisecond,
	})
	if err != nil {
		return nil, err
	}
	m := &member{group: group}
	go func() {
		for {
			generation, err := group.Next(t.ctx)
			if errors.Is(err, kafka.ErrGroupClosed) || t.ctx.Err() != nil {
				return
			}
			// Any other error is that of one attempt to join; the client tries again.
			if err == nil {
				m.begin(t, generation, seen)
			}
		}
	}()
	return m, nil
}

func (m *member) begin(t *task, generation *kafka.Generation, seen *plan.Set) {
	assigned := []int32{}
	for _, assignment := range generation.Assignments[t.topic] {
		assigned = append(assigned, int32(assignment.ID))
		generation.Start(func(ctx context.Context) {
			reader := kafka.NewReader(kafka.ReaderConfig{
				Brokers: []string{t.plan.Bootstrap}, Topic: t.topic, Partition: assignment.ID,
				MaxWait: 100 * time.Millisecond,
			})
			defer reader.Close()
			if reader.SetOffset(assignment.Offset) != nil {
				return
			}
			for {
				message, err := reader.ReadMessage(ctx)
				if err != nil {
					return
				}
				seen.Add(string(message.Value))
			}
		})
	}
	m.lock.Lock()
	defer m.lock.Unlock()
	m.assigned = assigned
}

func (m *member) Assigned() []int32 {
	m.lock.Lock()
	defer m.lock.Unlock()
	return slices.Clone(m.assigned)
}

func (m *member) Leave() {
	m.left.Do(func() { m.group.Close() })
}
