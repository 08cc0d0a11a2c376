// Command loadgen loads any Kafka broker over the raw wire with prebuilt frames, so that the broker
// is what is measured. Every response is checked; the first wrong one ends it with an error. What
// it measured is printed as JSON, one object per line.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sort"
	"strings"
)

type mode interface {
	flags(*flag.FlagSet)
	run() (any, error)
}

var modes = map[string]mode{
	"produce":   &produceLoad{},
	"fetch":     &fetchLoad{},
	"rebalance": &rebalanceLoad{},
	"commit":    &commitLoad{},
	"committed": &committedProbe{},
	"transact":  &transactLoad{},
	"idle":      &idleLoad{},
	"ready":     &readyProbe{},
	"create":    &topicCreation{},
	"delete":    &topicDeletion{},
}

func main() {
	var names []string
	for name := range modes {
		names = append(names, name)
	}
	sort.Strings(names)
	usage := fmt.Sprintf("usage: loadgen %s [-help] [flags]", strings.Join(names, "|"))
	if len(os.Args) < 2 {
		fail(usage)
	}
	m, known := modes[os.Args[1]]
	if !known {
		fail(usage)
	}
	f := flag.NewFlagSet("loadgen "+os.Args[1], flag.ExitOnError)
	m.flags(f)
	f.Parse(os.Args[2:])
	if f.NArg() > 0 {
		fail(fmt.Sprintf("unknown argument %q", f.Arg(0)))
	}
	out, err := m.run()
	if err != nil {
		fail(err.Error())
	}
	emit(out)
}

func emit(v any) {
	line, err := json.Marshal(v)
	if err != nil {
		fail(err.Error())
	}
	fmt.Println(string(line))
}

func fail(message string) {
	fmt.Fprintln(os.Stderr, "loadgen: "+message)
	os.Exit(1)
}
