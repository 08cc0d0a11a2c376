package main

import (
	"flag"
	"fmt"
	"strings"
	"time"
)

// topicCreation makes a topic and reports how long it took until every partition was served.
type topicCreation struct {
	bootstrap  string
	topic      string
	partitions int
	configs    string
}

type topicResult struct {
	Mode       string  `json:"mode"`
	Topic      string  `json:"topic"`
	Partitions int     `json:"partitions,omitempty"`
	Seconds    float64 `json:"seconds"`
}

func (t *topicCreation) flags(f *flag.FlagSet) {
	f.StringVar(&t.bootstrap, "bootstrap", "127.0.0.1:9092", "broker address")
	f.StringVar(&t.topic, "topic", "bench", "topic to make")
	f.IntVar(&t.partitions, "partitions", 4, "its partitions")
	f.StringVar(&t.configs, "configs", "", "NAME=VALUE,... of the topic")
}

func (t *topicCreation) run() (any, error) {
	configs := map[string]string{}
	for _, row := range strings.FieldsFunc(t.configs, func(r rune) bool { return r == ',' }) {
		name, value, found := strings.Cut(row, "=")
		if !found {
			return nil, fmt.Errorf("-configs: %q is not NAME=VALUE", row)
		}
		configs[name] = value
	}
	c, err := dial(t.bootstrap)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	start := time.Now()
	if err := c.createTopic(t.topic, t.partitions, configs); err != nil {
		return nil, err
	}
	return topicResult{"create", t.topic, t.partitions, time.Since(start).Seconds()}, nil
}

// topicDeletion deletes a topic; its files go when the broker's delay for that has passed.
type topicDeletion struct {
	bootstrap string
	topic     string
}

func (t *topicDeletion) flags(f *flag.FlagSet) {
	f.StringVar(&t.bootstrap, "bootstrap", "127.0.0.1:9092", "broker address")
	f.StringVar(&t.topic, "topic", "bench", "topic to delete")
}

func (t *topicDeletion) run() (any, error) {
	c, err := dial(t.bootstrap)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	start := time.Now()
	if err := c.deleteTopic(t.topic); err != nil {
		return nil, err
	}
	return topicResult{Mode: "delete", Topic: t.topic, Seconds: time.Since(start).Seconds()}, nil
}
