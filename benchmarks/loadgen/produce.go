package main

import (
	"flag"
	"fmt"
	"sort"
	"time"
)

// produceLoad sends the same prebuilt batch over and over, spread over connections and partitions.
type produceLoad struct {
	bootstrap   string
	topic       string
	version     int
	acks        int
	records     int
	valueBytes  int
	connections int
	inFlight    int
	partitions  int
	seconds     float64
	bytesMax    int64
	idempotent  bool
}

func (l *produceLoad) flags(f *flag.FlagSet) {
	f.StringVar(&l.bootstrap, "bootstrap", "127.0.0.1:9092", "broker address")
	f.StringVar(&l.topic, "topic", "bench", "an existing topic")
	f.IntVar(&l.version, "version", 13, "Produce version: 7 to 13 (13 is kafka-clients 4.1+, 10 librdkafka 2)")
	f.IntVar(&l.acks, "acks", 1, "0, 1 or -1 (all)")
	f.IntVar(&l.records, "records", 1000, "records per batch")
	f.IntVar(&l.valueBytes, "size", 1000, "bytes per record's value")
	f.IntVar(&l.connections, "connections", 4, "connections")
	f.IntVar(&l.inFlight, "in-flight", 5, "requests in flight per connection")
	f.IntVar(&l.partitions, "partitions", 4, "partitions written to, one per connection in turn")
	f.Float64Var(&l.seconds, "seconds", 5, "longest time")
	f.Int64Var(&l.bytesMax, "bytes-max", 0, "end after so many bytes of batches (0: by time alone)")
	f.BoolVar(&l.idempotent, "idempotent", false, "number the batches as an idempotent producer does")
}

func (l *produceLoad) check() error {
	switch {
	case l.version < 7 || l.version > 13:
		return fmt.Errorf("-version %d: Produce 7 to 13 can be sent", l.version)
	case l.acks < -1 || l.acks > 1:
		return fmt.Errorf("-acks %d: 0, 1 or -1", l.acks)
	case l.records < 1 || l.connections < 1 || l.inFlight < 1 || l.partitions < 1:
		return fmt.Errorf("-records, -connections, -in-flight and -partitions begin at 1")
	case l.idempotent && (l.acks != -1 || l.inFlight > 5):
		return fmt.Errorf("-idempotent needs -acks -1 and at most 5 in flight")
	}
	return nil
}

func (l *produceLoad) run() (any, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	control, err := dial(l.bootstrap)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	if err := control.requireVersion(apiProduce, int16(l.version)); err != nil {
		return nil, err
	}
	info, err := control.topic(l.topic)
	if err != nil {
		return nil, err
	}
	if info.partitions < l.partitions {
		return nil, fmt.Errorf("topic %s has %d partitions, not %d", l.topic, info.partitions, l.partitions)
	}
	before, err := control.offsets(l.topic, l.partitions, latest)
	if err != nil {
		return nil, err
	}
	batch := buildBatch(l.records, l.valueBytes)
	producers := make([]*producer, l.connections)
	for i := range producers {
		if producers[i], err = newProducer(l, info.id, int32(i%l.partitions), batch); err != nil {
			return nil, err
		}
		defer producers[i].conn.Close()
	}

	cpu, start := ownCPUSeconds(), time.Now()
	limit := newBudget(start, l.seconds, l.bytesMax, len(batch))
	if err := together(l.connections, func(i int) error { return producers[i].run(limit) }); err != nil {
		return nil, err
	}
	elapsed := time.Since(start).Seconds()

	out := result{Mode: "produce", Version: int16(l.version), Seconds: elapsed, OwnCPUSeconds: ownCPUSeconds() - cpu}
	var samples []time.Duration
	for _, p := range producers {
		out.Requests += p.requests
		samples = append(samples, p.latencies...)
	}
	out.Records = out.Requests * int64(l.records)
	out.Bytes = out.Requests * int64(len(batch))
	out.RequestsPerSecond = float64(out.Requests) / elapsed
	out.MBPerSecond = float64(out.Bytes) / elapsed / 1e6
	out.Latency = summarize(samples)
	return out, l.verify(control, producers, before)
}

// verify fails unless the acknowledged batches fill each partition from its old end without a hole
// or an overlap, and the log's end, once readable, is exactly behind them.
func (l *produceLoad) verify(control *conn, producers []*producer, before []int64) error {
	bases := make([][]int64, l.partitions)
	want := append([]int64(nil), before...)
	for _, p := range producers {
		bases[p.partition] = append(bases[p.partition], p.bases...)
		want[p.partition] += p.requests * int64(l.records)
	}
	for partition, got := range bases {
		sort.Slice(got, func(a, b int) bool { return got[a] < got[b] })
		for i, base := range got {
			if expected := before[partition] + int64(i*l.records); base != expected {
				return fmt.Errorf("partition %d: a batch at offset %d, %d was expected", partition, base, expected)
			}
		}
	}
	for deadline := time.Now().Add(answerTimeout); ; time.Sleep(5 * time.Millisecond) {
		after, err := control.offsets(l.topic, l.partitions, latest)
		if err != nil {
			return err
		}
		if equal(after, want) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the log ends at %v, %v was acknowledged", after, want)
		}
	}
}

func equal(a, b []int64) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// producer is one connection's share of the load.
type producer struct {
	load      *produceLoad
	conn      *conn
	topicID   uuid
	partition int32
	frame     []byte
	batch     []byte // the part of the frame that is the record batch
	sequence  int32
	requests  int64
	bases     []int64
	latencies []time.Duration
}

const samplesExpected = 1 << 16 // room made before the start, so that growing is rare

func newProducer(l *produceLoad, id uuid, partition int32, batch []byte) (*producer, error) {
	c, err := dial(l.bootstrap)
	if err != nil {
		return nil, err
	}
	p := l.producer(c, "", id, partition, batch)
	if l.idempotent {
		id, epoch, err := c.initProducerID("")
		if err != nil {
			return nil, err
		}
		be.PutUint64(p.batch[batchProducerAt:], uint64(id))
		be.PutUint16(p.batch[batchEpochAt:], uint16(epoch))
	}
	return p, nil
}

// producer prebuilds a connection's frame; a transactional id of "" means none.
func (l *produceLoad) producer(c *conn, transactionalID string, id uuid, partition int32, batch []byte) *producer {
	w := newRequest(apiProduce, int16(l.version))
	if transactionalID == "" {
		w.nullString()
	} else {
		w.string(transactionalID)
	}
	w.int16(int16(l.acks))
	w.int32(30000)
	w.array(1)
	if l.version >= 13 {
		w.uuid(id)
	} else {
		w.string(l.topic)
	}
	w.array(1)
	w.int32(partition)
	w.array(len(batch))
	at := len(w.b)
	w.b = append(w.b, batch...)
	w.tags()
	w.tags()
	w.tags()
	p := &producer{
		load: l, conn: c, topicID: id, partition: partition, frame: w.frame(),
		bases:     make([]int64, 0, samplesExpected),
		latencies: make([]time.Duration, 0, samplesExpected),
	}
	p.batch = p.frame[at : at+len(batch)]
	return p
}

// run keeps the window of requests full until the budget ends, then takes the last responses.
func (p *producer) run(limit *budget) error {
	p.conn.SetDeadline(limit.end.Add(answerTimeout))
	if p.load.acks == 0 {
		return p.runUnanswered(limit)
	}
	sentAt := make([]time.Time, p.load.inFlight) // a ring: responses come in the order of requests
	begun, ended := int64(0), int64(0)
	more := true
	for {
		for more && begun-ended < int64(p.load.inFlight) {
			now := time.Now()
			if more = limit.next(now); !more {
				break
			}
			sentAt[begun%int64(len(sentAt))] = now
			if err := p.send(); err != nil {
				return err
			}
			begun++
		}
		if begun == ended {
			p.requests = ended
			return nil
		}
		for {
			base, err := p.receive()
			if err != nil {
				return err
			}
			p.latencies = append(p.latencies, time.Since(sentAt[ended%int64(len(sentAt))]))
			p.bases = append(p.bases, base)
			ended++
			if !p.conn.responseWaits() {
				break
			}
		}
	}
}

// runUnanswered sends with acks=0; one answered request at the end shows that all were handled.
func (p *producer) runUnanswered(limit *budget) error {
	for limit.next(time.Now()) {
		if err := p.send(); err != nil {
			return err
		}
		p.requests++
	}
	p.conn.got = p.conn.sent
	_, err := p.conn.topic(p.load.topic)
	return err
}

func (p *producer) send() error {
	if p.load.idempotent {
		be.PutUint32(p.batch[batchSequenceAt:], uint32(p.sequence))
		sealBatch(p.batch)
		p.sequence = int32((int64(p.sequence) + int64(p.load.records)) & 0x7fffffff)
	}
	return p.conn.send(p.frame)
}

// receive checks one Produce response in full and returns the batch's base offset.
func (p *producer) receive() (int64, error) {
	version := p.load.version
	flex := version >= 9
	r, err := p.conn.receive(flex, flex)
	if err != nil {
		return 0, err
	}
	topics := r.array()
	if version >= 13 {
		if r.uuid() != p.topicID {
			return 0, fmt.Errorf("Produce answers for another topic id")
		}
	} else if r.string() != p.load.topic {
		return 0, fmt.Errorf("Produce answers for another topic")
	}
	partitions, partition := r.array(), r.int32()
	code, base := r.int16(), r.int64()
	r.int64() // append time
	r.int64() // log start offset
	text := ""
	if version >= 8 {
		for n := r.array(); n > 0; n-- {
			r.int32()
			r.string()
			r.tags()
		}
		text = r.string()
	}
	if code != 0 {
		return 0, brokerError("Produce", code, text)
	}
	r.tags()
	r.tags()
	r.int32() // throttle time
	r.tags()
	if err := r.done(); err != nil {
		return 0, err
	}
	if topics != 1 || partitions != 1 || partition != p.partition {
		return 0, fmt.Errorf("Produce answers for %d topics, %d partitions, partition %d not %d",
			topics, partitions, partition, p.partition)
	}
	return base, nil
}
