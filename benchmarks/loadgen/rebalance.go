package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"sync/atomic"
	"time"
)

const (
	joinGroupVersion  = 9
	syncGroupVersion  = 5
	heartbeatVersion  = 4
	leaveGroupVersion = 5

	sessionTimeoutMs   = 45_000 // the Java consumer's defaults
	rebalanceTimeoutMs = 300_000
	beatAgain          = time.Millisecond // after an answer that tells of no rebalance
)

// rebalanceLoad forms a group with a connection per member; then one member leaves, and one joins,
// again and again. Members ask by heartbeat as soon as that has begun instead of every 3 s, so that
// the broker's time is what is measured: it ends when the last member has its new share.
type rebalanceLoad struct {
	bootstrap  string
	topic      string
	partitions int
	members    int
	seconds    float64
	whole      int32 // the last generation that had all members, as its leader was told; 0: none yet
}

type rebalanceResult struct {
	result
	Formation float64  `json:"formation_seconds"`
	JoinP50   float64  `json:"join_p50_ms"`
	LeaveP50  float64  `json:"leave_p50_ms"`
	Joins     *latency `json:"join_ms"`
	Leaves    *latency `json:"leave_ms"`
}

func (l *rebalanceLoad) flags(f *flag.FlagSet) {
	f.StringVar(&l.bootstrap, "bootstrap", "127.0.0.1:9092", "broker address")
	f.StringVar(&l.topic, "topic", "bench", "the topic subscribed to; the group is named after it")
	f.IntVar(&l.partitions, "partitions", 100, "partitions to share out")
	f.IntVar(&l.members, "members", 50, "members")
	f.Float64Var(&l.seconds, "seconds", 5, "longest time, from when the group has formed")
}

func (l *rebalanceLoad) run() (any, error) {
	if l.members < 2 {
		return nil, fmt.Errorf("-members begins at 2")
	}
	members := make([]*member, l.members)
	for i := range members {
		c, err := dial(l.bootstrap)
		if err != nil {
			return nil, err
		}
		defer c.Close()
		members[i] = &member{load: l, conn: c, group: groupName(l.topic, 0)}
	}
	if err := members[0].conn.awaitGroup(members[0].group, l.topic); err != nil {
		return nil, err
	}
	start := time.Now()
	if err := together(l.members, func(i int) error { return members[i].form() }); err != nil {
		return nil, err
	}
	out := rebalanceResult{Formation: time.Since(start).Seconds()}
	if err := sameGeneration(members); err != nil {
		return nil, err
	}

	cpu := ownCPUSeconds()
	start = time.Now()
	limit := newBudget(start, l.seconds, 0, 0)
	var joins, leaves []time.Duration
	for who := 0; limit.next(time.Now()); who = (who + 1) % l.members {
		took, err := rebalance(members, who, (*member).leave)
		if err != nil {
			return nil, fmt.Errorf("after a leave: %w", err)
		}
		leaves = append(leaves, took)
		if took, err = rebalance(members, who, (*member).enter); err != nil {
			return nil, fmt.Errorf("after a join: %w", err)
		}
		joins = append(joins, took)
	}
	elapsed := time.Since(start).Seconds()
	out.result = result{
		Mode: "rebalance", Version: joinGroupVersion, Seconds: elapsed,
		Requests: int64(len(joins) + len(leaves)), OwnCPUSeconds: ownCPUSeconds() - cpu,
	}
	out.RequestsPerSecond = float64(out.Requests) / elapsed
	out.Joins, out.Leaves = summarize(joins), summarize(leaves)
	out.JoinP50, out.LeaveP50 = out.Joins.P50, out.Leaves.P50
	return out, together(l.members, func(i int) error { return members[i].leave() })
}

// rebalance has one member act; the others learn of it and share out anew. Returns how long it was
// from the act to the last answer.
func rebalance(members []*member, who int, act func(*member) error) (time.Duration, error) {
	begun := make(chan struct{})
	members[who].begun = func() { close(begun) }
	start := time.Now()
	err := together(len(members), func(i int) error {
		if i == who {
			return act(members[i])
		}
		<-begun
		return members[i].follow()
	})
	took := time.Since(start)
	if err != nil {
		return 0, err
	}
	return took, sameGeneration(members)
}

// sameGeneration fails unless all members that are in the group agree on where they are.
func sameGeneration(members []*member) error {
	generation := int32(-1)
	for _, m := range members {
		if m.id == "" {
			continue
		}
		if generation >= 0 && m.generation != generation {
			return fmt.Errorf("members are in generations %d and %d", generation, m.generation)
		}
		generation = m.generation
	}
	return nil
}

// member is one member of the group, on a connection of its own.
type member struct {
	load       *rebalanceLoad
	conn       *conn
	group      string
	id         string // "" while it is out of the group
	generation int32
	begun      func() // called when its act is on its way to the group
}

func (m *member) hasBegun() {
	if m.begun != nil {
		m.begun()
		m.begun = nil
	}
}

// enter joins as a new member: it is told its id first and joins with it (KIP-394).
func (m *member) enter() error {
	r, err := m.conn.call(apiJoinGroup, joinGroupVersion, m.writeJoin)
	if err != nil {
		return err
	}
	r.int32() // throttle time
	if code := r.int16(); code != errMemberIDRequired {
		return fmt.Errorf("JoinGroup of a new member: error code %d where %d was expected", code, errMemberIDRequired)
	}
	r.int32() // generation
	r.string()
	r.string()
	r.string()
	r.int8()
	m.id = r.string()
	return m.join()
}

// form enters, and follows rebalances until it has its share in a generation of all members: whoever
// comes after the first generation has begun makes the group rebalance again.
func (m *member) form() error {
	err := m.enter()
	for deadline := time.Now().Add(answerTimeout); err == nil; time.Sleep(beatAgain) {
		if atomic.LoadInt32(&m.load.whole) == m.generation {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the group has not all of its members after %s", answerTimeout)
		}
		_, err = m.beat()
	}
	return err
}

// follow learns by heartbeat that the group rebalances, then joins again.
func (m *member) follow() error {
	for ; ; time.Sleep(beatAgain) {
		if joined, err := m.beat(); joined || err != nil {
			return err
		}
	}
}

// beat sends a heartbeat, and joins again if it tells of a rebalance.
func (m *member) beat() (joined bool, err error) {
	r, err := m.conn.call(apiHeartbeat, heartbeatVersion, func(w *writer) {
		w.string(m.group)
		w.int32(m.generation)
		w.string(m.id)
		w.nullString()
		w.tags()
	})
	if err != nil {
		return false, err
	}
	r.int32() // throttle time
	code := r.int16()
	r.tags()
	if err := r.done(); err != nil {
		return false, err
	}
	switch code {
	case 0:
		return false, nil
	case errRebalanceInProgress:
		return true, m.join()
	default:
		return false, brokerError("Heartbeat", code, "")
	}
}

// join joins and asks for its share, again if the group has begun to rebalance in between.
func (m *member) join() error {
	for {
		protocol, ids, err := m.joinRound()
		if err != nil {
			return err
		}
		if err = m.sync(protocol, ids); !errors.Is(err, errAgain) {
			return err
		}
	}
}

// errAgain says that the round of a SyncGroup is over: another one has begun.
var errAgain = errors.New("the group rebalances")

// joinRound joins with the id that the member has; returns the protocol, and the leader's members.
func (m *member) joinRound() (protocol string, ids []string, err error) {
	w := newRequest(apiJoinGroup, joinGroupVersion)
	m.writeJoin(w)
	m.conn.SetDeadline(time.Now().Add(answerTimeout))
	if err := m.conn.send(w.frame()); err != nil {
		return "", nil, err
	}
	m.hasBegun()
	r, err := m.conn.receive(true, true)
	if err != nil {
		return "", nil, err
	}
	r.int32() // throttle time
	if code := r.int16(); code != 0 {
		return "", nil, brokerError("JoinGroup", code, "")
	}
	m.generation = r.int32()
	r.string() // protocol type
	protocol = r.string()
	leader := r.string()
	r.int8() // skip the assignment
	if id := r.string(); id != m.id {
		return "", nil, fmt.Errorf("JoinGroup answers to %q, not to %q", id, m.id)
	}
	for n := r.array(); n > 0 && r.err == nil; n-- {
		ids = append(ids, r.string())
		r.string() // instance
		if metadata := r.bytes(); !bytes.Equal(metadata, m.load.subscription()) {
			return "", nil, fmt.Errorf("JoinGroup tells of a subscription of %d bytes that nobody sent", len(metadata))
		}
		r.tags()
	}
	r.tags()
	if err := r.done(); err != nil {
		return "", nil, err
	}
	if (leader == m.id) != (len(ids) > 0) {
		return "", nil, fmt.Errorf("%s leads, and %s is told of %d members", leader, m.id, len(ids))
	}
	if len(ids) == m.load.members {
		atomic.StoreInt32(&m.load.whole, m.generation)
	}
	return protocol, ids, nil
}

func (m *member) writeJoin(w *writer) {
	w.string(m.group)
	w.int32(sessionTimeoutMs)
	w.int32(rebalanceTimeoutMs)
	w.string(m.id)
	w.nullString() // instance
	w.string("consumer")
	w.array(2)
	for _, name := range []string{"range", "cooperative-sticky"} {
		w.string(name)
		w.bytes(m.load.subscription())
		w.tags()
	}
	w.nullString() // reason
	w.tags()
}

// sync asks for the member's share, which must be the one that the leader gave it.
func (m *member) sync(protocol string, ids []string) error {
	r, err := m.conn.call(apiSyncGroup, syncGroupVersion, func(w *writer) {
		w.string(m.group)
		w.int32(m.generation)
		w.string(m.id)
		w.nullString() // instance
		w.string("consumer")
		w.string(protocol)
		w.array(len(ids))
		for _, id := range ids {
			w.string(id)
			w.bytes(m.load.share(id))
			w.tags()
		}
		w.tags()
	})
	if err != nil {
		return err
	}
	r.int32() // throttle time
	switch code := r.int16(); code {
	case 0:
	case errRebalanceInProgress:
		return errAgain
	default:
		return brokerError("SyncGroup", code, "")
	}
	r.string() // protocol type
	r.string() // protocol
	share := r.bytes()
	r.tags()
	if err := r.done(); err != nil {
		return err
	}
	if !bytes.Equal(share, m.load.share(m.id)) {
		return fmt.Errorf("%s got another member's share", m.id)
	}
	return nil
}

// leave takes the member out of the group.
func (m *member) leave() error {
	r, err := m.conn.call(apiLeaveGroup, leaveGroupVersion, func(w *writer) {
		w.string(m.group)
		w.array(1)
		w.string(m.id)
		w.nullString() // instance
		w.nullString() // reason
		w.tags()
		w.tags()
	})
	if err != nil {
		return err
	}
	r.int32() // throttle time
	if code := r.int16(); code != 0 {
		return brokerError("LeaveGroup", code, "")
	}
	m.id = ""
	m.hasBegun()
	return r.err
}

// subscription is what a Java consumer says of itself (version 3): topics, partitions that it has,
// generation, rack. Always the same, so that any member can check what the leader is told.
func (l *rebalanceLoad) subscription() []byte {
	w := &writer{}
	w.int16(3)
	w.array(1)
	w.string(l.topic)
	w.int32(-1) // no user data
	l.writeShare(w, 0)
	w.int32(1)  // generation
	w.int16(-1) // no rack
	return w.b
}

// share is a member's assignment: two partitions that its id tells, and the id itself as user data.
func (l *rebalanceLoad) share(id string) []byte {
	sum := 0
	for _, b := range []byte(id) {
		sum = sum*31 + int(b)
	}
	w := &writer{}
	w.int16(3)
	l.writeShare(w, sum&0xffff)
	w.bytes([]byte(id))
	return w.b
}

func (l *rebalanceLoad) writeShare(w *writer, first int) {
	w.array(1)
	w.string(l.topic)
	w.array(2)
	w.int32(int32(first % l.partitions))
	w.int32(int32((first + 1) % l.partitions))
}
