package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"time"
)

const (
	readBufferBytes  = 64 << 10
	responseBytesMax = 128 << 20
	answerTimeout    = 60 * time.Second // no broker under test is silent for so long and well
)

// conn is one connection to the broker; requests are answered in the order they are sent.
type conn struct {
	net.Conn
	in   *bufio.Reader
	body []byte // holds the response last received, grown to the largest so far
	sent int32  // correlation id of the last request sent
	got  int32  // correlation id of the last response received
}

func dial(address string) (*conn, error) {
	c, err := net.DialTimeout("tcp", address, 10*time.Second)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, in: bufio.NewReaderSize(c, readBufferBytes)}, nil
}

// send numbers the frame and writes it.
func (c *conn) send(frame []byte) error {
	c.sent++
	be.PutUint32(frame[correlationAt:], uint32(c.sent))
	_, err := c.Write(frame)
	return err
}

// receive reads the next response, which is valid until the next call, and checks its number.
func (c *conn) receive(flexHeader, flexBody bool) (reader, error) {
	head, err := c.in.Peek(4)
	if err != nil {
		return reader{}, fmt.Errorf("reading a response: %w", err)
	}
	n := int(be.Uint32(head))
	if n < 4 || n > responseBytesMax {
		return reader{}, fmt.Errorf("a response of %d bytes", n)
	}
	c.in.Discard(4)
	if cap(c.body) < n {
		c.body = make([]byte, n)
	}
	c.body = c.body[:n]
	if _, err := io.ReadFull(c.in, c.body); err != nil {
		return reader{}, fmt.Errorf("reading a response of %d bytes: %w", n, err)
	}
	r := reader{b: c.body, flex: flexHeader}
	c.got++
	if id := r.int32(); id != c.got {
		return reader{}, fmt.Errorf("correlation id %d where %d was expected", id, c.got)
	}
	r.tags()
	r.flex = flexBody
	return r, r.err
}

// responseWaits says whether a whole response lies in the buffer already.
func (c *conn) responseWaits() bool {
	if c.in.Buffered() < 4 {
		return false
	}
	head, _ := c.in.Peek(4)
	return c.in.Buffered() >= 4+int(be.Uint32(head))
}

// call sends one request and waits for its response, but not for ever.
func (c *conn) call(api, version int16, body func(*writer)) (reader, error) {
	c.SetDeadline(time.Now().Add(answerTimeout))
	defer c.SetDeadline(time.Time{})
	return c.request(api, version, body)
}

// request is a call under the deadline that the connection has.
func (c *conn) request(api, version int16, body func(*writer)) (reader, error) {
	w := newRequest(api, version)
	body(w)
	if err := c.send(w.frame()); err != nil {
		return reader{}, err
	}
	// The header of an ApiVersions response never has tagged fields (KIP-511).
	return c.receive(w.flex && api != apiVersions, w.flex)
}
