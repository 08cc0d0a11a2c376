package main

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand"
	"time"
)

// Places of the fields of a record batch (magic 2).
const (
	batchLengthAt     = 8
	batchMagicAt      = 16
	batchCRCAt        = 17
	batchAttributesAt = 21 // the checksum covers from here on
	batchLastDeltaAt  = 23
	batchProducerAt   = 43
	batchEpochAt      = 51
	batchSequenceAt   = 53
	batchHeaderBytes  = 61
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// buildBatch makes an uncompressed batch of keyless records with random values of valueBytes each.
func buildBatch(records, valueBytes int) []byte {
	now := time.Now().UnixMilli()
	b := make([]byte, batchHeaderBytes, batchHeaderBytes+records*(valueBytes+16))
	be.PutUint32(b[12:], 0) // leader epoch
	b[batchMagicAt] = 2
	be.PutUint32(b[batchLastDeltaAt:], uint32(records-1))
	be.PutUint64(b[27:], uint64(now))
	be.PutUint64(b[35:], uint64(now))
	be.PutUint64(b[batchProducerAt:], ^uint64(0))
	be.PutUint16(b[batchEpochAt:], ^uint16(0))
	be.PutUint32(b[batchSequenceAt:], ^uint32(0))
	be.PutUint32(b[57:], uint32(records))

	value := make([]byte, valueBytes)
	rand.New(rand.NewSource(1)).Read(value)
	var record []byte
	for i := 0; i < records; i++ {
		record = append(record[:0], 0)                 // attributes
		record = binary.AppendVarint(record, 0)        // timestamp delta
		record = binary.AppendVarint(record, int64(i)) // offset delta
		record = binary.AppendVarint(record, -1)       // no key
		record = binary.AppendVarint(record, int64(valueBytes))
		record = append(record, value...)
		record = binary.AppendVarint(record, 0) // no headers
		b = binary.AppendVarint(b, int64(len(record)))
		b = append(b, record...)
	}
	be.PutUint32(b[batchLengthAt:], uint32(len(b)-12))
	sealBatch(b)
	return b
}

func sealBatch(b []byte) {
	be.PutUint32(b[batchCRCAt:], crc32.Checksum(b[batchAttributesAt:], castagnoli))
}

// walkBatches checks that the whole batches in b continue from offset (the first may hold it inside)
// and returns the next offset and the bytes of whole batches; a cut batch at the end is allowed.
func walkBatches(b []byte, offset int64, checkCRC bool) (next int64, whole int, err error) {
	next = offset
	for at := 0; len(b)-at >= batchHeaderBytes; {
		size := 12 + int(be.Uint32(b[at+batchLengthAt:]))
		if size < batchHeaderBytes {
			return 0, 0, fmt.Errorf("batch of %d bytes at %d", size, at)
		}
		if at+size > len(b) {
			break
		}
		batch := b[at : at+size]
		base := int64(be.Uint64(batch))
		last := base + int64(be.Uint32(batch[batchLastDeltaAt:]))
		if batch[batchMagicAt] != 2 || base > next || last < next || (at > 0 && base != next) {
			return 0, 0, fmt.Errorf("batch %d-%d (magic %d) where offset %d was expected",
				base, last, batch[batchMagicAt], next)
		}
		if checkCRC {
			want := be.Uint32(batch[batchCRCAt:])
			if got := crc32.Checksum(batch[batchAttributesAt:], castagnoli); got != want {
				return 0, 0, fmt.Errorf("batch at offset %d: checksum %08x, %08x stored", base, got, want)
			}
		}
		next = last + 1
		at += size
		whole = at
	}
	return next, whole, nil
}
