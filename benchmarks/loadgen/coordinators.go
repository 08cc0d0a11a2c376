package main

import (
	"errors"
	"fmt"
	"time"
)

const (
	groupKey       = int8(0)
	transactionKey = int8(1)

	errLoading               = 14
	errNotAvailable          = 15
	errNotCoordinator        = 16
	errRebalanceInProgress   = 27
	errConcurrentTransaction = 51
	errMemberIDRequired      = 79
)

// isComing says whether an error code means that a coordinator is loading or not there yet.
func isComing(code int16) bool {
	return code == errLoading || code == errNotAvailable || code == errNotCoordinator
}

// patiently asks again while the answer is errNotReady.
func patiently(every time.Duration, ask func() error) error {
	for deadline := time.Now().Add(answerTimeout); ; time.Sleep(every) {
		err := ask()
		if err == nil || !errors.Is(err, errNotReady) || time.Now().After(deadline) {
			return err
		}
	}
}

// findCoordinator asks who coordinates a group or a transactional id; the topic that it needs is
// made on the first such question.
func (c *conn) findCoordinator(kind int8, key string) error {
	return patiently(10*time.Millisecond, func() error {
		r, err := c.call(apiCoordinator, 4, func(w *writer) {
			w.int8(kind)
			w.array(1)
			w.string(key)
			w.tags()
		})
		if err != nil {
			return err
		}
		r.int32() // throttle time
		if n := r.array(); n != 1 {
			return fmt.Errorf("FindCoordinator answers for %d keys", n)
		}
		r.string() // key
		r.int32()  // node
		r.string() // host
		r.int32()  // port
		code, text := r.int16(), r.string()
		r.tags()
		r.tags()
		if isComing(code) {
			return fmt.Errorf("%w: FindCoordinator, error %d", errNotReady, code)
		}
		if code != 0 {
			return brokerError("FindCoordinator", code, text)
		}
		return r.done()
	})
}

// initProducerID asks for a producer id; with a transactional id, earlier owners of it are fenced.
func (c *conn) initProducerID(transactionalID string) (id int64, epoch int16, err error) {
	err = patiently(50*time.Millisecond, func() error {
		r, err := c.call(apiInitProducerID, 4, func(w *writer) {
			if transactionalID == "" {
				w.nullString()
			} else {
				w.string(transactionalID)
			}
			w.int32(60000)
			w.int64(-1)
			w.int16(-1)
			w.tags()
		})
		if err != nil {
			return err
		}
		r.int32() // throttle time
		code := r.int16()
		id, epoch = r.int64(), r.int16()
		r.tags()
		if isComing(code) || code == errConcurrentTransaction {
			return fmt.Errorf("%w: InitProducerId, error %d", errNotReady, code)
		}
		if code != 0 {
			return brokerError("InitProducerId", code, "")
		}
		return r.done()
	})
	return id, epoch, err
}

// committed asks for a group's offsets of partitions 0..n-1, -1 where there is none.
func (c *conn) committed(group, topic string, partitions int) ([]int64, error) {
	r, err := c.call(apiOffsetFetch, 8, func(w *writer) {
		w.array(1)
		w.string(group)
		w.array(1)
		w.string(topic)
		w.array(partitions)
		for p := 0; p < partitions; p++ {
			w.int32(int32(p))
		}
		w.tags()
		w.tags()
		w.int8(0) // open transactions may hide behind what is committed
		w.tags()
	})
	if err != nil {
		return nil, err
	}
	r.int32() // throttle time
	if n := r.array(); n != 1 {
		return nil, fmt.Errorf("OffsetFetch answers for %d groups", n)
	}
	if got := r.string(); got != group {
		return nil, fmt.Errorf("OffsetFetch answers for group %q, not %q", got, group)
	}
	offsets := make([]int64, partitions)
	for topics := r.array(); topics > 0 && r.err == nil; topics-- {
		r.string()
		for n := r.array(); n > 0 && r.err == nil; n-- {
			p := r.int32()
			offset := r.int64()
			r.int32()  // leader epoch
			r.string() // metadata
			code := r.int16()
			r.tags()
			if code != 0 {
				return nil, brokerError("OffsetFetch", code, "")
			}
			if p < 0 || int(p) >= partitions {
				return nil, fmt.Errorf("OffsetFetch answers for partition %d", p)
			}
			offsets[p] = offset
		}
		r.tags()
	}
	code := r.int16()
	r.tags()
	r.tags()
	if isComing(code) {
		return nil, fmt.Errorf("%w: OffsetFetch of %s, error %d", errNotReady, group, code)
	}
	if code != 0 {
		return nil, brokerError("OffsetFetch", code, "")
	}
	return offsets, r.done()
}

// awaitGroup waits until a group's coordinator serves it.
func (c *conn) awaitGroup(group, topic string) error {
	if err := c.findCoordinator(groupKey, group); err != nil {
		return err
	}
	return patiently(probeEvery, func() error {
		_, err := c.committed(group, topic, 1)
		return err
	})
}
