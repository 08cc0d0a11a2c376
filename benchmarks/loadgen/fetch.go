package main

import (
	"flag"
	"fmt"
	"time"
)

// fetchLoad reads partitions from their start to their end and again, one request at a time per
// connection, outside of a fetch session as librdkafka does.
type fetchLoad struct {
	bootstrap   string
	topic       string
	version     int
	connections int
	partitions  int
	bytes       int
	seconds     float64
	bytesMax    int64
}

const crcEvery = 16 // responses per one whose checksums are computed, so that the broker stays the limit

func (l *fetchLoad) flags(f *flag.FlagSet) {
	f.StringVar(&l.bootstrap, "bootstrap", "127.0.0.1:9092", "broker address")
	f.StringVar(&l.topic, "topic", "bench", "a topic with records")
	f.IntVar(&l.version, "version", 16, "Fetch version: 4 to 17 (17 is kafka-clients 4, 16 librdkafka 2)")
	f.IntVar(&l.connections, "connections", 4, "connections")
	f.IntVar(&l.partitions, "partitions", 4, "partitions read, one per connection in turn")
	f.IntVar(&l.bytes, "bytes", 1<<20, "bytes per response, of the partition and in all")
	f.Float64Var(&l.seconds, "seconds", 5, "longest time")
	f.Int64Var(&l.bytesMax, "bytes-max", 0, "end after about so many bytes (0: by time alone)")
}

func (l *fetchLoad) run() (any, error) {
	if l.version < 4 || l.version > 17 {
		return nil, fmt.Errorf("-version %d: Fetch 4 to 17 can be sent", l.version)
	}
	control, err := dial(l.bootstrap)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	if err := control.requireVersion(apiFetch, int16(l.version)); err != nil {
		return nil, err
	}
	info, err := control.topic(l.topic)
	if err != nil {
		return nil, err
	}
	first, err := control.offsets(l.topic, l.partitions, earliest)
	if err != nil {
		return nil, err
	}
	end, err := control.offsets(l.topic, l.partitions, latest)
	if err != nil {
		return nil, err
	}
	fetchers := make([]*fetcher, l.connections)
	for i := range fetchers {
		p := i % l.partitions
		if first[p] == end[p] {
			return nil, fmt.Errorf("partition %d of %s is empty", p, l.topic)
		}
		c, err := dial(l.bootstrap)
		if err != nil {
			return nil, err
		}
		defer c.Close()
		f := &fetcher{load: l, conn: c, topicID: info.id, partition: int32(p), first: first[p], end: end[p]}
		f.offset = f.first
		f.build()
		fetchers[i] = f
	}
	cpu, start := ownCPUSeconds(), time.Now()
	limit := newBudget(start, l.seconds, l.bytesMax, l.bytes)
	if err := together(l.connections, func(i int) error { return fetchers[i].run(limit) }); err != nil {
		return nil, err
	}
	elapsed := time.Since(start).Seconds()
	out := result{Mode: "fetch", Version: int16(l.version), Seconds: elapsed, OwnCPUSeconds: ownCPUSeconds() - cpu}
	var samples []time.Duration
	for _, f := range fetchers {
		out.Requests += int64(len(f.latencies))
		out.Records += f.records
		out.Bytes += f.bytes
		samples = append(samples, f.latencies...)
	}
	out.RequestsPerSecond = float64(out.Requests) / elapsed
	out.MBPerSecond = float64(out.Bytes) / elapsed / 1e6
	out.Latency = summarize(samples)
	return out, nil
}

// fetcher is one connection's share of the load.
type fetcher struct {
	load       *fetchLoad
	conn       *conn
	topicID    uuid
	partition  int32
	first, end int64
	isolation  int8 // 1: only what is committed
	offset     int64
	frame      []byte
	offsetAt   int
	records    int64
	bytes      int64 // of whole batches: a cut batch at the end of a response is not counted
	latencies  []time.Duration
}

func (f *fetcher) build() {
	version := f.load.version
	w := newRequest(apiFetch, int16(version))
	if version < 15 {
		w.int32(-1) // replica id
	}
	w.int32(500) // longest wait, ms
	w.int32(1)   // fewest bytes
	w.int32(int32(f.load.bytes))
	w.int8(f.isolation)
	if version >= 7 {
		w.int32(0) // no session
		w.int32(-1)
	}
	w.array(1)
	if version >= 13 {
		w.uuid(f.topicID)
	} else {
		w.string(f.load.topic)
	}
	w.array(1)
	w.int32(f.partition)
	if version >= 9 {
		w.int32(-1) // leader epoch not known
	}
	f.offsetAt = len(w.b)
	w.int64(0)
	if version >= 12 {
		w.int32(-1) // epoch last fetched
	}
	if version >= 5 {
		w.int64(-1) // log start, of followers
	}
	w.int32(int32(f.load.bytes))
	w.tags()
	w.tags()
	if version >= 7 {
		w.array(0) // forgotten topics
	}
	if version >= 11 {
		w.string("") // rack
	}
	w.tags()
	f.frame = w.frame()
}

func (f *fetcher) run(limit *budget) error {
	f.conn.SetDeadline(limit.end.Add(answerTimeout))
	for {
		start := time.Now()
		if !limit.next(start) {
			return nil
		}
		be.PutUint64(f.frame[f.offsetAt:], uint64(f.offset))
		if err := f.conn.send(f.frame); err != nil {
			return err
		}
		set, err := f.receive()
		if err != nil {
			return err
		}
		f.latencies = append(f.latencies, time.Since(start))
		next, whole, err := walkBatches(set, f.offset, len(f.latencies)%crcEvery == 1)
		if err != nil {
			return fmt.Errorf("partition %d: %w", f.partition, err)
		}
		if whole == 0 {
			return fmt.Errorf("partition %d: nothing at offset %d, the log ends at %d", f.partition, f.offset, f.end)
		}
		f.records += next - f.offset
		f.bytes += int64(whole)
		if f.offset = next; next >= f.end {
			f.offset = f.first
		}
	}
}

// receive checks one Fetch response and returns its record set, valid until the next request.
func (f *fetcher) receive() ([]byte, error) {
	version := f.load.version
	flex := version >= 12
	r, err := f.conn.receive(flex, flex)
	if err != nil {
		return nil, err
	}
	r.int32() // throttle time
	if version >= 7 {
		if code := r.int16(); code != 0 {
			return nil, brokerError("Fetch", code, "")
		}
		r.int32() // session
	}
	topics := r.array()
	if version >= 13 {
		if r.uuid() != f.topicID {
			return nil, fmt.Errorf("Fetch answers for another topic id")
		}
	} else if r.string() != f.load.topic {
		return nil, fmt.Errorf("Fetch answers for another topic")
	}
	partitions, partition, code := r.array(), r.int32(), r.int16()
	if code != 0 {
		return nil, brokerError("Fetch", code, "")
	}
	if topics != 1 || partitions != 1 || partition != f.partition {
		return nil, fmt.Errorf("Fetch answers for %d topics, %d partitions, partition %d not %d",
			topics, partitions, partition, f.partition)
	}
	r.int64() // high watermark
	r.int64() // last stable offset
	if version >= 5 {
		r.int64() // log start offset
	}
	for n := r.array(); n > 0; n-- {
		r.int64()
		r.int64()
		r.tags()
	}
	if version >= 11 {
		r.int32() // preferred read replica
	}
	length := r.array()
	if length < 0 {
		length = 0 // null: no records
	}
	set := r.take(length)
	r.tags()
	r.tags()
	r.tags()
	return set, r.done()
}
