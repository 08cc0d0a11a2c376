package main

import (
	"flag"
	"fmt"
	"time"
)

// transactLoad commits transactions one after the other, each a batch of records to one partition.
type transactLoad struct {
	bootstrap  string
	topic      string
	partitions int
	records    int
	valueBytes int
	flow       int
	seconds    float64
}

const (
	batchTransactional = 0x10 // attribute bits
	batchControl       = 0x20

	// As the Java producer waits after CONCURRENT_TRANSACTIONS, which says that the markers of its
	// last transaction are not all written yet.
	concurrentBackoff = 20 * time.Millisecond
)

type transactResult struct {
	result
	Backoffs int64 `json:"backoffs"`
}

func (l *transactLoad) flags(f *flag.FlagSet) {
	f.StringVar(&l.bootstrap, "bootstrap", "127.0.0.1:9092", "broker address")
	f.StringVar(&l.topic, "topic", "bench", "an existing, empty topic; the transactional id is its name")
	f.IntVar(&l.partitions, "partitions", 1, "partitions, written to in turn")
	f.IntVar(&l.records, "records", 10, "records per transaction")
	f.IntVar(&l.valueBytes, "size", 100, "bytes per record's value")
	f.IntVar(&l.flow, "flow", 2, "2: KIP-890 v2 (Produce v13, EndTxn v5); 1: AddPartitionsToTxn v3, Produce v11, EndTxn v3")
	f.Float64Var(&l.seconds, "seconds", 5, "longest time")
}

func (l *transactLoad) run() (any, error) {
	if l.flow != 1 && l.flow != 2 {
		return nil, fmt.Errorf("-flow %d: 1 or 2", l.flow)
	}
	t, err := newTransactor(l)
	if err != nil {
		return nil, err
	}
	defer t.conn.Close()
	cpu, start := ownCPUSeconds(), time.Now()
	limit := newBudget(start, l.seconds, 0, 0)
	t.conn.SetDeadline(limit.end.Add(answerTimeout))
	for begun := time.Now(); limit.next(begun); begun = time.Now() {
		if err := t.transact(); err != nil {
			return nil, fmt.Errorf("transaction %d: %w", len(t.latencies), err)
		}
		t.latencies = append(t.latencies, time.Since(begun))
	}
	elapsed := time.Since(start).Seconds()
	out := transactResult{Backoffs: t.backoffs}
	out.result = result{
		Mode: "transact", Version: int16(t.producer.load.version), Seconds: elapsed,
		Requests: int64(len(t.latencies)), OwnCPUSeconds: ownCPUSeconds() - cpu,
	}
	out.Records = out.Requests * int64(l.records)
	out.Bytes = out.Requests * int64(len(t.producers[0].batch))
	out.RequestsPerSecond = float64(out.Requests) / elapsed
	out.Latency = summarize(append([]time.Duration(nil), t.latencies...))
	return out, t.verify(out.Records)
}

// transactor is a transactional producer with one request in flight.
type transactor struct {
	load      *transactLoad
	conn      *conn
	id        int64
	epoch     int16
	producers []*producer // one per partition, on the same connection
	producer  *producer   // of the current transaction
	latencies []time.Duration
	backoffs  int64
}

func newTransactor(l *transactLoad) (*transactor, error) {
	c, err := dial(l.bootstrap)
	if err != nil {
		return nil, err
	}
	t := &transactor{load: l, conn: c}
	if err := c.findCoordinator(transactionKey, l.topic); err != nil {
		return nil, err
	}
	if t.id, t.epoch, err = c.initProducerID(l.topic); err != nil {
		return nil, err
	}
	info, err := c.topic(l.topic)
	if err != nil {
		return nil, err
	}
	batch := buildBatch(l.records, l.valueBytes)
	batch[batchAttributesAt+1] |= batchTransactional
	for p := 0; p < l.partitions; p++ {
		of := &produceLoad{topic: l.topic, version: map[int]int{1: 11, 2: 13}[l.flow], acks: -1, records: l.records}
		t.producers = append(t.producers, of.producer(c, l.topic, info.id, int32(p), batch))
	}
	t.producer = t.producers[0]
	return t, nil
}

// transact writes one batch and commits it.
func (t *transactor) transact() error {
	t.producer = t.producers[len(t.latencies)%len(t.producers)]
	if t.load.flow == 1 {
		if err := t.persist(t.addPartition); err != nil {
			return err
		}
	}
	if err := t.persist(t.produce); err != nil {
		return err
	}
	return t.persist(t.end)
}

// persist does a step, again and again while the last transaction is in its way.
func (t *transactor) persist(step func() (int16, error)) error {
	for {
		code, err := step()
		if err != nil {
			return err
		}
		if code == 0 {
			return nil
		}
		if code != errConcurrentTransaction {
			return fmt.Errorf("error code %d", code)
		}
		t.backoffs++
		time.Sleep(concurrentBackoff)
	}
}

func (t *transactor) addPartition() (int16, error) {
	r, err := t.conn.request(apiAddPartitions, 3, func(w *writer) {
		w.string(t.load.topic)
		w.int64(t.id)
		w.int16(t.epoch)
		w.array(1)
		w.string(t.load.topic)
		w.array(1)
		w.int32(t.producer.partition)
		w.tags()
		w.tags()
	})
	if err != nil {
		return 0, err
	}
	r.int32() // throttle time
	topics := r.array()
	r.string()
	partitions, partition, code := r.array(), r.int32(), r.int16()
	r.tags()
	r.tags()
	r.tags()
	if err := r.done(); err != nil {
		return 0, err
	}
	if topics != 1 || partitions != 1 || partition != t.producer.partition {
		return 0, fmt.Errorf("AddPartitionsToTxn answers for %d topics, %d partitions", topics, partitions)
	}
	return code, nil
}

func (t *transactor) produce() (int16, error) {
	p := t.producer
	be.PutUint64(p.batch[batchProducerAt:], uint64(t.id))
	be.PutUint16(p.batch[batchEpochAt:], uint16(t.epoch))
	be.PutUint32(p.batch[batchSequenceAt:], uint32(p.sequence))
	sealBatch(p.batch)
	if err := t.conn.send(p.frame); err != nil {
		return 0, err
	}
	_, err := p.receive()
	if failed, is := err.(codeError); is && failed.code == errConcurrentTransaction {
		return failed.code, nil
	}
	p.sequence += int32(t.load.records)
	return 0, err
}

func (t *transactor) end() (int16, error) {
	version := map[int]int16{1: 3, 2: 5}[t.load.flow]
	r, err := t.conn.request(apiEndTxn, version, func(w *writer) {
		w.string(t.load.topic)
		w.int64(t.id)
		w.int16(t.epoch)
		w.int8(1) // commit
		w.tags()
	})
	if err != nil {
		return 0, err
	}
	r.int32() // throttle time
	code := r.int16()
	if version >= 5 {
		id, epoch := r.int64(), r.int16()
		if code == 0 {
			if id == t.id && epoch <= t.epoch {
				return 0, fmt.Errorf("EndTxn answers epoch %d after %d", epoch, t.epoch)
			}
			t.id, t.epoch = id, epoch // numbers begin again with each epoch
			for _, p := range t.producers {
				p.sequence = 0
			}
		}
	}
	r.tags()
	return code, r.done()
}

// verify fails unless who reads only what is committed finds exactly the records expected.
func (t *transactor) verify(expected int64) error {
	count := int64(0)
	for _, p := range t.producers {
		of := &fetchLoad{topic: t.load.topic, version: 16, bytes: 1 << 20}
		f := &fetcher{load: of, conn: t.conn, topicID: p.topicID, partition: p.partition, isolation: 1}
		f.build()
		found, err := f.countCommitted(t.endOf(p))
		if err != nil {
			return err
		}
		count += found
	}
	if count != expected {
		return fmt.Errorf("%d records were committed, %d can be read", expected, count)
	}
	return nil
}

// endOf is where the log of a producer's partition ends: behind each batch there is a marker.
func (t *transactor) endOf(p *producer) int64 {
	batches := 0
	for i := range t.latencies {
		if t.producers[i%len(t.producers)] == p {
			batches++
		}
	}
	return int64(batches * (t.load.records + 1))
}

// countCommitted reads to an offset and counts the records that are no markers.
func (f *fetcher) countCommitted(end int64) (records int64, err error) {
	for deadline := time.Now().Add(answerTimeout); f.offset < end; {
		be.PutUint64(f.frame[f.offsetAt:], uint64(f.offset))
		if err := f.conn.send(f.frame); err != nil {
			return 0, err
		}
		set, err := f.receive()
		if err != nil {
			return 0, err
		}
		next, whole, err := walkBatches(set, f.offset, true)
		if err != nil {
			return 0, err
		}
		if whole == 0 && time.Now().After(deadline) {
			return 0, fmt.Errorf("the log can be read to offset %d, not to %d", f.offset, end)
		}
		f.offset = next
		for at := 0; at < whole; at += 12 + int(be.Uint32(set[at+batchLengthAt:])) {
			if set[at+batchAttributesAt+1]&batchControl == 0 {
				records += int64(be.Uint32(set[at+batchHeaderBytes-4:]))
			}
		}
	}
	return records, nil
}
