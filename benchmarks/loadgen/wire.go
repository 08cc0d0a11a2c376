package main

import (
	"encoding/binary"
	"fmt"
)

var be = binary.BigEndian

const (
	apiProduce        = 0
	apiFetch          = 1
	apiListOffsets    = 2
	apiMetadata       = 3
	apiOffsetCommit   = 8
	apiOffsetFetch    = 9
	apiCoordinator    = 10
	apiJoinGroup      = 11
	apiHeartbeat      = 12
	apiLeaveGroup     = 13
	apiSyncGroup      = 14
	apiVersions       = 18
	apiCreateTopics   = 19
	apiDeleteTopics   = 20
	apiInitProducerID = 22
	apiAddPartitions  = 24
	apiEndTxn         = 26

	clientID = "headrace-loadgen"
)

// firstFlexible is the first version of each API with compact lengths and tagged fields (KIP-482).
var firstFlexible = map[int16]int16{
	apiProduce: 9, apiFetch: 12, apiListOffsets: 6, apiMetadata: 9, apiVersions: 3,
	apiCreateTopics: 5, apiDeleteTopics: 4, apiInitProducerID: 2,
	apiOffsetCommit: 8, apiOffsetFetch: 6, apiCoordinator: 3, apiJoinGroup: 6, apiHeartbeat: 4,
	apiLeaveGroup: 4, apiSyncGroup: 4, apiAddPartitions: 3, apiEndTxn: 3,
}

type uuid [16]byte

// writer appends one request frame; the same calls write the flexible and the older form.
type writer struct {
	b    []byte
	flex bool
}

const correlationAt = 8 // length 4, API key 2, version 2

func newRequest(api, version int16) *writer {
	w := &writer{flex: version >= firstFlexible[api]}
	w.int32(0) // the frame's length, set by frame()
	w.int16(api)
	w.int16(version)
	w.int32(0) // the correlation id, set when sent
	w.b = be.AppendUint16(w.b, uint16(len(clientID)))
	w.b = append(w.b, clientID...)
	w.tags()
	return w
}

func (w *writer) frame() []byte {
	be.PutUint32(w.b, uint32(len(w.b)-4))
	return w.b
}

func (w *writer) int8(v int8)   { w.b = append(w.b, byte(v)) }
func (w *writer) int16(v int16) { w.b = be.AppendUint16(w.b, uint16(v)) }
func (w *writer) int32(v int32) { w.b = be.AppendUint32(w.b, uint32(v)) }
func (w *writer) int64(v int64) { w.b = be.AppendUint64(w.b, uint64(v)) }
func (w *writer) uuid(v uuid)   { w.b = append(w.b, v[:]...) }

func (w *writer) string(s string) {
	if w.flex {
		w.b = binary.AppendUvarint(w.b, uint64(len(s)+1))
	} else {
		w.int16(int16(len(s)))
	}
	w.b = append(w.b, s...)
}

func (w *writer) nullString() {
	if w.flex {
		w.b = append(w.b, 0)
	} else {
		w.int16(-1)
	}
}

// bytes writes a blob, whose length has the form of an array's.
func (w *writer) bytes(b []byte) {
	w.array(len(b))
	w.b = append(w.b, b...)
}

// array writes an array's length; a record set's length has the same form.
func (w *writer) array(n int) {
	if w.flex {
		w.b = binary.AppendUvarint(w.b, uint64(n+1))
	} else {
		w.int32(int32(n))
	}
}

func (w *writer) tags() {
	if w.flex {
		w.b = append(w.b, 0)
	}
}

// reader takes a response apart. The first fault sticks in err and all later reads give zeros.
type reader struct {
	b    []byte
	at   int
	flex bool
	err  error
}

func (r *reader) take(n int) []byte {
	if r.err != nil {
		return nil
	}
	if n < 0 || r.at+n > len(r.b) {
		r.err = fmt.Errorf("response of %d bytes ends early: %d more wanted at %d", len(r.b), n, r.at)
		return nil
	}
	r.at += n
	return r.b[r.at-n : r.at]
}

func (r *reader) int8() int8 {
	if b := r.take(1); b != nil {
		return int8(b[0])
	}
	return 0
}

func (r *reader) int16() int16 {
	if b := r.take(2); b != nil {
		return int16(be.Uint16(b))
	}
	return 0
}

func (r *reader) int32() int32 {
	if b := r.take(4); b != nil {
		return int32(be.Uint32(b))
	}
	return 0
}

func (r *reader) int64() int64 {
	if b := r.take(8); b != nil {
		return int64(be.Uint64(b))
	}
	return 0
}

func (r *reader) uuid() (id uuid) {
	copy(id[:], r.take(16))
	return id
}

func (r *reader) uvarint() int {
	if r.err != nil {
		return 0
	}
	v, n := binary.Uvarint(r.b[r.at:])
	if n <= 0 || v > 1<<31 {
		r.err = fmt.Errorf("bad varint at %d", r.at)
		return 0
	}
	r.at += n
	return int(v)
}

// array reads an array's length, -1 for null; a record set's length has the same form.
func (r *reader) array() int {
	if r.flex {
		return r.uvarint() - 1
	}
	return int(r.int32())
}

// string reads a string; null reads as "".
func (r *reader) string() string {
	n := 0
	if r.flex {
		n = r.uvarint() - 1
	} else {
		n = int(r.int16())
	}
	if n <= 0 {
		return ""
	}
	return string(r.take(n))
}

// bytes reads a blob; it is valid as long as the response is.
func (r *reader) bytes() []byte {
	n := r.array()
	if n <= 0 {
		return nil
	}
	return r.take(n)
}

func (r *reader) tags() {
	if !r.flex {
		return
	}
	for n := r.uvarint(); n > 0 && r.err == nil; n-- {
		r.uvarint()
		r.take(r.uvarint())
	}
}

// done reports the first fault, or bytes that nothing has read.
func (r *reader) done() error {
	if r.err == nil && r.at != len(r.b) {
		return fmt.Errorf("response has %d bytes, %d were expected", len(r.b), r.at)
	}
	return r.err
}
