// Package plan is what the Go clients share: the plan that they are given and the lines they print.
package plan

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"
)

// WaitMax is how long a client waits for anything that must come.
const WaitMax = 20 * time.Second

const (
	groupPartitions = 6
	groupRecords    = 60
)

// Observed is what a case saw, in the form that tests/interop/cases.py checks.
type Observed map[string]any

// Header is a name and a value that may be null; JSON has it as a pair.
type Header struct {
	Name  string
	Value []byte
}

// Record is a record as the plan and the observations have it; nil bytes are null.
type Record struct {
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	Headers   []Header `json:"headers"`
	Timestamp int64    `json:"timestamp"`
	Offset    int64    `json:"offset"`
}

// Plan is the file named by the program's last argument.
type Plan struct {
	Bootstrap string   `json:"bootstrap"`
	SeededAt  int64    `json:"seeded_at"`
	Records   []Record `json:"records"`
	Tasks     []struct {
		Name  string `json:"name"`
		Topic string `json:"topic"`
	} `json:"tasks"`
}

func (h *Header) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&h.Name, &h.Value})
}

func (h Header) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{h.Name, h.Value})
}

// Run reads the plan, does every task and prints a line for each.
func Run(observe func(p *Plan, name, topic string) (Observed, error)) {
	data, err := os.ReadFile(os.Args[len(os.Args)-1])
	if err != nil {
		panic(err)
	}
	var p Plan
	if err := json.Unmarshal(data, &p); err != nil {
		panic(err)
	}
	lines := json.NewEncoder(os.Stdout)
	for _, task := range p.Tasks {
		line := map[string]any{"case": task.Name}
		observed, err := observe(&p, task.Name, task.Topic)
		if err != nil {
			line["error"] = err.Error()
		} else {
			line["observed"] = observed
		}
		if err := lines.Encode(line); err != nil {
			panic(err)
		}
	}
}

// Settled asks until the answer is the wanted one; Kafka tells its brokers of a change a little later.
func Settled[T comparable](ask func() (T, error), wanted T) (T, error) {
	deadline := time.Now().Add(WaitMax / 2)
	answer, err := ask()
	for (err != nil || answer != wanted) && time.Now().Before(deadline) {
		answer, err = ask()
	}
	return answer, err
}

// Times are the moments that offsets are looked up for.
func (p *Plan) Times() map[string]int64 {
	return map[string]int64{
		"before":  p.SeededAt - 1,
		"exact":   p.SeededAt + 5000,
		"between": p.SeededAt + 5001,
		"after":   p.SeededAt + 20000,
	}
}

// Member is a member of a group that consumes in the background.
type Member interface {
	Assigned() []int32
	Leave()
}

// Group watches three members share a topic, and two after one has left.
func Group(members []Member, seen *Set) (Observed, error) {
	defer func() {
		for _, member := range members {
			member.Leave()
		}
	}()
	complete := func() bool { return seen.Len() == groupRecords }
	assignments, err := Settle(members, complete)
	if err != nil {
		return nil, err
	}
	members[2].Leave()
	members = members[:2]
	afterLeave, err := Settle(members, complete)
	if err != nil {
		return nil, err
	}
	return Observed{"assignments": assignments, "after_leave": afterLeave, "values": seen.Sorted()}, nil
}

// Settle waits until the members share all partitions evenly and `more` holds.
func Settle(members []Member, more func() bool) ([][]int32, error) {
	var assigned [][]int32
	for deadline := time.Now().Add(WaitMax); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		assigned = nil
		even := true
		for _, member := range members {
			partitions := member.Assigned()
			slices.Sort(partitions)
			assigned = append(assigned, partitions)
			even = even && len(partitions) == groupPartitions/len(members)
		}
		if even && more() {
			return assigned, nil
		}
	}
	return nil, fmt.Errorf("the group did not settle: %v", assigned)
}
