package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"time"
)

// readyProbe asks again and again until a starting broker answers.
type readyProbe struct {
	bootstrap  string
	topic      string
	partitions int
	seconds    float64
}

type readyResult struct {
	Mode             string `json:"mode"`
	FirstAnswerAtNs  int64  `json:"first_answer_unix_ns"` // ApiVersions
	ServingAtNs      int64  `json:"serving_unix_ns"`      // Metadata, and every partition asked for
	ConnectionsTried int    `json:"connections_tried"`
}

const probeEvery = 2 * time.Millisecond

func (p *readyProbe) flags(f *flag.FlagSet) {
	f.StringVar(&p.bootstrap, "bootstrap", "127.0.0.1:9092", "broker address")
	f.StringVar(&p.topic, "topic", "", "wait until this topic is served")
	f.IntVar(&p.partitions, "partitions", 0, "with so many partitions, all with a leader")
	f.Float64Var(&p.seconds, "seconds", 60, "longest wait")
}

func (p *readyProbe) run() (any, error) {
	out := readyResult{Mode: "ready"}
	deadline := time.Now().Add(time.Duration(p.seconds * float64(time.Second)))
	for ; ; time.Sleep(probeEvery) {
		out.ConnectionsTried++
		err := p.ask(&out)
		if err == nil {
			return out, nil
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("no answer within %.0f s: %w", p.seconds, err)
		}
	}
}

func (p *readyProbe) ask(out *readyResult) error {
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
	if err := p.awaitServing(c); err != nil {
		return err
	}
	out.ServingAtNs = time.Now().UnixNano()
	return nil
}

func (p *readyProbe) awaitServing(c *conn) error {
	if p.topic != "" {
		return c.awaitTopic(p.topic, p.partitions)
	}
	r, err := c.call(apiMetadata, 12, func(w *writer) {
		w.array(0)
		w.int8(0)
		w.int8(0)
		w.tags()
	})
	if err != nil {
		return err
	}
	_, err = r.metadata()
	return err
}

// idleLoad opens connections, has one answer on each, and holds them until its input ends.
type idleLoad struct {
	bootstrap   string
	connections int
}

type idleResult struct {
	Mode        string  `json:"mode"`
	Connections int     `json:"connections"`
	OpenSeconds float64 `json:"open_seconds"`
	Alive       bool    `json:"alive"` // every one answered again at the end
}

func (l *idleLoad) flags(f *flag.FlagSet) {
	f.StringVar(&l.bootstrap, "bootstrap", "127.0.0.1:9092", "broker address")
	f.IntVar(&l.connections, "connections", 5000, "connections")
}

func (l *idleLoad) run() (any, error) {
	start := time.Now()
	held := make([]*conn, l.connections)
	for i := range held {
		c, err := dial(l.bootstrap)
		if err != nil {
			return nil, fmt.Errorf("connection %d of %d: %w", i+1, l.connections, err)
		}
		defer c.Close()
		if _, err := c.supported(); err != nil {
			return nil, fmt.Errorf("connection %d of %d: %w", i+1, l.connections, err)
		}
		held[i] = c
	}
	out := idleResult{Mode: "idle", Connections: l.connections, OpenSeconds: time.Since(start).Seconds()}
	emit(out) // tells the caller that all are open
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return nil, err
	}
	for i, c := range held {
		if _, err := c.supported(); err != nil {
			return nil, fmt.Errorf("connection %d of %d was lost: %w", i+1, l.connections, err)
		}
	}
	out.Alive = true
	return out, nil
}
