package main

import (
	"math"
	"sort"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// result is what a measured load reports; rates are over the time to the last response.
type result struct {
	Mode              string   `json:"mode"`
	Version           int16    `json:"api_version"`
	Requests          int64    `json:"requests"`
	Records           int64    `json:"records"`
	Bytes             int64    `json:"bytes"`
	Seconds           float64  `json:"seconds"`
	RequestsPerSecond float64  `json:"requests_per_second"`
	MBPerSecond       float64  `json:"mb_per_second"`
	Latency           *latency `json:"latency_ms,omitempty"`
	OwnCPUSeconds     float64  `json:"own_cpu_seconds"`
}

type latency struct {
	Samples int     `json:"samples"`
	Mean    float64 `json:"mean"`
	P50     float64 `json:"p50"`
	P99     float64 `json:"p99"`
	P999    float64 `json:"p999"`
	Max     float64 `json:"max"`
}

// summarize sorts the samples and takes exact percentiles (nearest rank).
func summarize(samples []time.Duration) *latency {
	if len(samples) == 0 {
		return nil
	}
	sort.Slice(samples, func(a, b int) bool { return samples[a] < samples[b] })
	var sum time.Duration
	for _, s := range samples {
		sum += s
	}
	ms := func(d time.Duration) float64 { return float64(d) / 1e6 }
	rank := func(p float64) float64 {
		return ms(samples[int(math.Ceil(p*float64(len(samples))))-1])
	}
	return &latency{
		Samples: len(samples), Mean: ms(sum) / float64(len(samples)),
		P50: rank(0.5), P99: rank(0.99), P999: rank(0.999), Max: rank(1),
	}
}

// budget ends a load: after a time, or after a number of requests over all connections.
type budget struct {
	end      time.Time
	requests int64 // 0: by time alone
	begun    atomic.Int64
}

// newBudget allows requests of requestBytes each for some seconds, or bytesMax in all if that is not 0.
func newBudget(start time.Time, seconds float64, bytesMax int64, requestBytes int) *budget {
	b := &budget{end: start.Add(time.Duration(seconds * float64(time.Second)))}
	if bytesMax > 0 {
		b.requests = 1 + (bytesMax-1)/int64(requestBytes)
	}
	return b
}

// next says whether one more request may be sent, and counts it.
func (b *budget) next(now time.Time) bool {
	if now.After(b.end) {
		return false
	}
	return b.begun.Add(1) <= b.requests || b.requests == 0
}

// together runs one worker per index at the same time; the first error ends the wait's result.
func together(n int, work func(i int) error) error {
	errs := make(chan error, n)
	var all sync.WaitGroup
	for i := 0; i < n; i++ {
		all.Add(1)
		go func(i int) {
			defer all.Done()
			errs <- work(i)
		}(i)
	}
	all.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func ownCPUSeconds() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	of := func(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }
	return of(u.Utime) + of(u.Stime)
}
