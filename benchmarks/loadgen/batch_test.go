package main

import (
	"testing"
	"time"
)

func TestBatchesThatContinueAreWalkedAndACutOneIsLeft(t *testing.T) {
	set := append(at(7, 3), at(10, 2)...)
	whole := len(set)
	set = append(set, at(12, 5)[:70]...)
	next, bytes, err := walkBatches(set, 8, true)
	if err != nil || next != 12 || bytes != whole {
		t.Fatalf("next %d, %d of %d bytes, %v", next, bytes, whole, err)
	}
}

func TestAHoleAnOverlapAndAFlippedBitAreFound(t *testing.T) {
	flipped := at(0, 2)
	flipped[len(flipped)-1] ^= 1
	for name, set := range map[string][]byte{
		"hole":     append(at(0, 2), at(3, 1)...),
		"overlap":  append(at(0, 2), at(1, 1)...),
		"later":    at(5, 1),
		"bit flip": flipped,
	} {
		if _, _, err := walkBatches(set, 0, true); err == nil {
			t.Errorf("%s was not found", name)
		}
	}
}

func TestPercentilesAreNearestRank(t *testing.T) {
	var samples []time.Duration
	for i := 1000; i > 0; i-- {
		samples = append(samples, time.Duration(i)*time.Millisecond)
	}
	l := summarize(samples)
	if l.P50 != 500 || l.P99 != 990 || l.P999 != 999 || l.Max != 1000 || l.Mean != 500.5 {
		t.Fatalf("%+v", l)
	}
}

func TestACutResponseIsAnError(t *testing.T) {
	r := reader{b: []byte{0, 0, 0}}
	r.int16()
	r.int32()
	if r.done() == nil {
		t.Fatal("no error")
	}
	r = reader{b: []byte{0, 0, 0}}
	r.int16()
	if r.done() == nil {
		t.Fatal("left-over bytes were not found")
	}
}

// at makes a batch of records that begins at an offset.
func at(offset int64, records int) []byte {
	b := buildBatch(records, 10)
	be.PutUint64(b, uint64(offset))
	return b
}
