package main

import (
	"errors"
	"flag"
	"fmt"
	"time"
)

const offsetCommitVersion = 9

// commitLoad commits offsets of groups without members, as consumers do that choose their
// partitions themselves; each connection serves groups of its own, in turn.
type commitLoad struct {
	bootstrap   string
	topic       string
	partitions  int
	connections int
	groups      int
	inFlight    int
	seconds     float64
	commitsMax  int64
}

func (l *commitLoad) flags(f *flag.FlagSet) {
	f.StringVar(&l.bootstrap, "bootstrap", "127.0.0.1:9092", "broker address")
	f.StringVar(&l.topic, "topic", "bench", "an existing topic; the groups are named after it")
	f.IntVar(&l.partitions, "partitions", 1, "partitions per commit")
	f.IntVar(&l.connections, "connections", 1, "connections")
	f.IntVar(&l.groups, "groups", 1, "groups, at least one per connection")
	f.IntVar(&l.inFlight, "in-flight", 1, "requests in flight per connection")
	f.Float64Var(&l.seconds, "seconds", 5, "longest time")
	f.Int64Var(&l.commitsMax, "commits-max", 0, "end after so many partitions' offsets (0: by time alone)")
}

// groupName is the name of a load's n-th group.
func groupName(topic string, n int) string { return fmt.Sprintf("%s-group-%d", topic, n) }

func (l *commitLoad) run() (any, error) {
	if l.partitions < 1 || l.connections < 1 || l.inFlight < 1 || l.groups < l.connections {
		return nil, fmt.Errorf("-partitions, -connections and -in-flight begin at 1, -groups at -connections")
	}
	control, err := dial(l.bootstrap)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	if err := control.requireVersion(apiOffsetCommit, offsetCommitVersion); err != nil {
		return nil, err
	}
	committers := make([]*committer, l.connections)
	for i := range committers {
		if committers[i], err = newCommitter(l); err != nil {
			return nil, err
		}
		defer committers[i].conn.Close()
	}
	for n := 0; n < l.groups; n++ {
		group := groupName(l.topic, n)
		if err := control.awaitGroup(group, l.topic); err != nil {
			return nil, err
		}
		committers[n%l.connections].add(group)
	}

	cpu, start := ownCPUSeconds(), time.Now()
	if err := together(l.connections, func(i int) error {
		// Each its own share, so that a number of commits comes to the same offset in all groups.
		return committers[i].run(newBudget(start, l.seconds, l.commitsMax/int64(l.connections), l.partitions))
	}); err != nil {
		return nil, err
	}
	elapsed := time.Since(start).Seconds()

	out := result{Mode: "commit", Version: offsetCommitVersion, Seconds: elapsed, OwnCPUSeconds: ownCPUSeconds() - cpu}
	var samples []time.Duration
	for _, c := range committers {
		out.Requests += int64(len(c.latencies))
		samples = append(samples, c.latencies...)
	}
	out.Records = out.Requests * int64(l.partitions)
	out.RequestsPerSecond = float64(out.Requests) / elapsed
	out.Latency = summarize(samples)
	for _, c := range committers {
		if err := c.verify(control); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// committer is one connection's share of the load.
type committer struct {
	load      *commitLoad
	conn      *conn
	groups    []*committingGroup
	latencies []time.Duration
}

// committingGroup is a prebuilt commit of one group, with the places of its offsets.
type committingGroup struct {
	name      string
	frame     []byte
	offsetsAt []int
	last      int64 // the offset committed last
}

func newCommitter(l *commitLoad) (*committer, error) {
	c, err := dial(l.bootstrap)
	if err != nil {
		return nil, err
	}
	return &committer{load: l, conn: c, latencies: make([]time.Duration, 0, samplesExpected)}, nil
}

func (c *committer) add(name string) {
	g := &committingGroup{name: name}
	w := newRequest(apiOffsetCommit, offsetCommitVersion)
	w.string(name)
	w.int32(-1)  // generation: the group has no members
	w.string("") // member
	w.nullString()
	w.array(1)
	w.string(c.load.topic)
	w.array(c.load.partitions)
	for p := 0; p < c.load.partitions; p++ {
		w.int32(int32(p))
		g.offsetsAt = append(g.offsetsAt, len(w.b))
		w.int64(0)
		w.int32(0) // leader epoch
		w.string("")
		w.tags()
	}
	w.tags()
	w.tags()
	g.frame = w.frame()
	c.groups = append(c.groups, g)
}

// run keeps the window of commits full until the budget ends, then takes the last responses.
func (c *committer) run(limit *budget) error {
	c.conn.SetDeadline(limit.end.Add(answerTimeout))
	window := int64(c.load.inFlight)
	sentAt := make([]time.Time, window)
	begun, ended := int64(0), int64(0)
	more := true
	for {
		for more && begun-ended < window {
			now := time.Now()
			if more = limit.next(now); !more {
				break
			}
			sentAt[begun%window] = now
			if err := c.send(c.groups[begun%int64(len(c.groups))]); err != nil {
				return err
			}
			begun++
		}
		if begun == ended {
			return nil
		}
		if err := c.receive(); err != nil {
			return err
		}
		c.latencies = append(c.latencies, time.Since(sentAt[ended%window]))
		ended++
	}
}

func (c *committer) send(g *committingGroup) error {
	g.last++
	for _, at := range g.offsetsAt {
		be.PutUint64(g.frame[at:], uint64(g.last))
	}
	return c.conn.send(g.frame)
}

// receive checks one OffsetCommit response in full.
func (c *committer) receive() error {
	r, err := c.conn.receive(true, true)
	if err != nil {
		return err
	}
	r.int32() // throttle time
	topics, topic, partitions := r.array(), r.string(), r.array()
	for p := 0; p < partitions && r.err == nil; p++ {
		index, code := r.int32(), r.int16()
		r.tags()
		if code != 0 {
			return brokerError("OffsetCommit", code, "")
		}
		if int(index) != p {
			return fmt.Errorf("OffsetCommit answers for partition %d where %d was expected", index, p)
		}
	}
	r.tags()
	r.tags()
	if err := r.done(); err != nil {
		return err
	}
	if topics != 1 || topic != c.load.topic || partitions != c.load.partitions {
		return fmt.Errorf("OffsetCommit answers for %d topics (%s), %d partitions", topics, topic, partitions)
	}
	return nil
}

// verify fails unless the offsets committed last are those that the broker tells.
func (c *committer) verify(control *conn) error {
	for _, g := range c.groups {
		if g.last == 0 {
			continue
		}
		if err := control.mustHold(g.name, c.load.topic, c.load.partitions, g.last); err != nil {
			return err
		}
	}
	return nil
}

// mustHold fails unless a group's committed offsets of all partitions are the one expected.
func (c *conn) mustHold(group, topic string, partitions int, expected int64) error {
	offsets, err := c.committed(group, topic, partitions)
	if err != nil {
		return err
	}
	for p, got := range offsets {
		if got != expected {
			return fmt.Errorf("%s has committed %d for partition %d, the broker tells %d", group, expected, p, got)
		}
	}
	return nil
}

// committedProbe asks a starting broker again and again until it tells what groups have committed.
type committedProbe struct {
	bootstrap  string
	topic      string
	partitions int
	groups     int
	commits    int64
	seconds    float64
}

func (p *committedProbe) flags(f *flag.FlagSet) {
	f.StringVar(&p.bootstrap, "bootstrap", "127.0.0.1:9092", "broker address")
	f.StringVar(&p.topic, "topic", "bench", "the topic of the commits; the groups are named after it")
	f.IntVar(&p.partitions, "partitions", 1, "partitions per group")
	f.IntVar(&p.groups, "groups", 1, "groups")
	f.Int64Var(&p.commits, "commits", 0, "offsets committed over all groups, in turn")
	f.Float64Var(&p.seconds, "seconds", 120, "longest wait")
}

func (p *committedProbe) run() (any, error) {
	out := readyResult{Mode: "committed"}
	deadline := time.Now().Add(time.Duration(p.seconds * float64(time.Second)))
	for ; ; time.Sleep(probeEvery) {
		out.ConnectionsTried++
		err := p.ask(&out)
		if err == nil || time.Now().After(deadline) {
			return out, err
		}
		if wrong := (wrongAnswer{}); errors.As(err, &wrong) {
			return nil, err
		}
	}
}

// wrongAnswer is a fault that no waiting mends.
type wrongAnswer struct{ error }

func (p *committedProbe) ask(out *readyResult) error {
	c, err := dial(p.bootstrap)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.supported(); err != nil {
		return err
	}
	if out.FirstAnswerAtNs == 0 {
		out.FirstAnswerAtNs = time.Now().UnixNano()
	}
	each := p.commits / int64(p.partitions) / int64(p.groups)
	for n := 0; n < p.groups; n++ {
		group := groupName(p.topic, n)
		if err := c.awaitGroup(group, p.topic); err != nil {
			return err
		}
		if err := c.mustHold(group, p.topic, p.partitions, each); err != nil {
			return wrongAnswer{err}
		}
	}
	out.ServingAtNs = time.Now().UnixNano()
	return nil
}
