package main

import (
	"errors"
	"fmt"
	"time"
)

type versionRange struct{ min, max int16 }

// supported asks for the version ranges that the broker serves, by API key.
func (c *conn) supported() (map[int16]versionRange, error) {
	r, err := c.call(apiVersions, 3, func(w *writer) {
		w.string(clientID)
		w.string("1")
		w.tags()
	})
	if err != nil {
		return nil, err
	}
	if code := r.int16(); code != 0 {
		return nil, brokerError("ApiVersions", code, "")
	}
	ranges := map[int16]versionRange{}
	for n := r.array(); n > 0; n-- {
		key, lo, hi := r.int16(), r.int16(), r.int16()
		ranges[key] = versionRange{lo, hi}
		r.tags()
	}
	r.int32() // throttle time
	r.tags()
	return ranges, r.done()
}

// requireVersion fails when the broker does not serve this version of this API.
func (c *conn) requireVersion(api, version int16) error {
	ranges, err := c.supported()
	if err != nil {
		return err
	}
	if s, known := ranges[api]; !known || version < s.min || version > s.max {
		return fmt.Errorf("the broker serves API %d in versions %d-%d, not %d", api, s.min, s.max, version)
	}
	return nil
}

type topicInfo struct {
	id         uuid
	partitions int
	leaderless int
}

// topic describes one topic; errNotReady while it is unknown or a partition has no leader.
func (c *conn) topic(name string) (topicInfo, error) {
	var info topicInfo
	r, err := c.call(apiMetadata, 12, func(w *writer) {
		w.array(1)
		w.uuid(uuid{})
		w.string(name)
		w.tags()
		w.int8(0) // do not create
		w.int8(0)
		w.tags()
	})
	if err != nil {
		return info, err
	}
	topics, err := r.metadata()
	if err != nil {
		return info, err
	}
	found, known := topics[name]
	if !known {
		return info, fmt.Errorf("Metadata does not answer for topic %s", name)
	}
	if found.code != 0 {
		return info, fmt.Errorf("%w: topic %s, error %d", errNotReady, name, found.code)
	}
	if found.leaderless > 0 {
		return info, fmt.Errorf("%w: %d partitions of %s have no leader", errNotReady, found.leaderless, name)
	}
	return found.topicInfo, nil
}

var errNotReady = errors.New("not ready")

type foundTopic struct {
	topicInfo
	code int16
}

// metadata reads a whole Metadata v12 response.
func (r *reader) metadata() (map[string]foundTopic, error) {
	r.int32() // throttle time
	brokers := 0
	for n := r.array(); n > 0; n-- {
		r.int32()
		r.string()
		r.int32()
		r.string()
		r.tags()
		brokers++
	}
	r.string() // cluster id
	r.int32()  // controller
	topics := map[string]foundTopic{}
	for n := r.array(); n > 0 && r.err == nil; n-- {
		var t foundTopic
		t.code = r.int16()
		name := r.string()
		t.id = r.uuid()
		r.int8()
		for p := r.array(); p > 0 && r.err == nil; p-- {
			code := r.int16()
			r.int32() // index
			leader := r.int32()
			r.int32() // epoch
			for lists := 0; lists < 3; lists++ {
				for k := r.array(); k > 0; k-- {
					r.int32()
				}
			}
			r.tags()
			t.partitions++
			if code != 0 || leader < 0 {
				t.leaderless++
			}
		}
		r.int32() // authorized operations
		r.tags()
		topics[name] = t
	}
	r.tags()
	if err := r.done(); err != nil {
		return nil, err
	}
	if brokers == 0 {
		return nil, fmt.Errorf("%w: Metadata lists no broker", errNotReady)
	}
	return topics, nil
}

// createTopic makes a topic and waits until it is served.
func (c *conn) createTopic(name string, partitions int, configs map[string]string) error {
	r, err := c.call(apiCreateTopics, 7, func(w *writer) {
		w.array(1)
		w.string(name)
		w.int32(int32(partitions))
		w.int16(1)
		w.array(0)
		w.array(len(configs))
		for key, value := range configs {
			w.string(key)
			w.string(value)
			w.tags()
		}
		w.tags()
		w.int32(int32(answerTimeout / time.Millisecond))
		w.int8(0)
		w.tags()
	})
	if err != nil {
		return err
	}
	r.int32() // throttle time
	if n := r.array(); n != 1 {
		return fmt.Errorf("CreateTopics answers for %d topics", n)
	}
	r.string()
	r.uuid()
	if code, text := r.int16(), r.string(); code != 0 {
		return brokerError("CreateTopics", code, text)
	}
	return c.awaitTopic(name, partitions)
}

// awaitTopic waits until every partition has a leader and that leader serves it.
func (c *conn) awaitTopic(name string, partitions int) error {
	for deadline := time.Now().Add(answerTimeout); ; time.Sleep(probeEvery) {
		info, err := c.topic(name)
		if err == nil && info.partitions < partitions {
			err = fmt.Errorf("%w: %d of %d partitions", errNotReady, info.partitions, partitions)
		}
		if err == nil {
			_, err = c.offsets(name, partitions, latest)
		}
		if err == nil || !errors.Is(err, errNotReady) || time.Now().After(deadline) {
			return err
		}
	}
}

func (c *conn) deleteTopic(name string) error {
	r, err := c.call(apiDeleteTopics, 6, func(w *writer) {
		w.array(1)
		w.string(name)
		w.uuid(uuid{})
		w.tags()
		w.int32(int32(answerTimeout / time.Millisecond))
		w.tags()
	})
	if err != nil {
		return err
	}
	r.int32() // throttle time
	if n := r.array(); n != 1 {
		return fmt.Errorf("DeleteTopics answers for %d topics", n)
	}
	r.string()
	r.uuid()
	if code, text := r.int16(), r.string(); code != 0 {
		return brokerError("DeleteTopics", code, text)
	}
	return r.err
}

const (
	latest   = -1
	earliest = -2
)

// offsets asks for the earliest or latest offset of partitions 0..n-1.
func (c *conn) offsets(topic string, partitions int, which int64) ([]int64, error) {
	r, err := c.call(apiListOffsets, 7, func(w *writer) {
		w.int32(-1)
		w.int8(0)
		w.array(1)
		w.string(topic)
		w.array(partitions)
		for p := 0; p < partitions; p++ {
			w.int32(int32(p))
			w.int32(-1)
			w.int64(which)
			w.tags()
		}
		w.tags()
		w.tags()
	})
	if err != nil {
		return nil, err
	}
	offsets := make([]int64, partitions)
	r.int32() // throttle time
	if n := r.array(); n != 1 {
		return nil, fmt.Errorf("ListOffsets answers for %d topics", n)
	}
	r.string()
	if n := r.array(); n != partitions {
		return nil, fmt.Errorf("ListOffsets answers for %d of %d partitions", n, partitions)
	}
	for i := 0; i < partitions; i++ {
		p, code := r.int32(), r.int16()
		if code == 3 || code == 5 || code == 6 { // Kafka tells of a new leader before that serves
			return nil, fmt.Errorf("%w: ListOffsets of partition %d, error %d", errNotReady, p, code)
		}
		if code != 0 {
			return nil, brokerError("ListOffsets", code, "")
		}
		if int(p) >= partitions || p < 0 {
			return nil, fmt.Errorf("ListOffsets answers for partition %d", p)
		}
		r.int64() // timestamp
		offsets[p] = r.int64()
		r.int32() // leader epoch
		r.tags()
	}
	r.tags()
	r.tags()
	return offsets, r.done()
}

// codeError is an answer with an error code.
type codeError struct {
	api  string
	code int16
	text string
}

func (e codeError) Error() string {
	text := e.text
	if text != "" {
		text = ": " + text
	}
	return fmt.Sprintf("%s failed with error code %d%s", e.api, e.code, text)
}

func brokerError(api string, code int16, text string) error { return codeError{api, code, text} }
