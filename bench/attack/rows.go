package main

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/bench/internal/load"
	"github.com/serry-dev/serry/bench/internal/pest"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/pause"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/xlapb"
)

// A row is something that a stranger does to a server, over and over.
type row struct {
	number  int // in the list of SECT-20
	name    string
	workers int // that do it at the same time
	do      func(ctx context.Context, s stranger) error
}

// A stranger does a row to a victim. Those of each row come from an address of their own, so that they are not held up
// by the others.
type stranger struct {
	*victim
	pest.Host
}

// plainRows are what a stranger without any credential does to a server.
func plainRows(cutHello string) ([]row, error) {
	packed, err := pest.Packed(2 << 30)
	if err != nil {
		return nil, err
	}
	bomb := func(ctx context.Context, s stranger) error { return s.Bomb(ctx, s.addr, load.InsertKey, packed) }
	return append([]row{
		{20, "escapes", 1, talk(false, escapes)},
		{14, "silent", 2000, linger("")},
		{14, "stopped in the greeting", 2000, linger(http2.ClientPreface[:8])},
		{14, "stopped in a handshake", 2000, linger(cutHello)},
		{14, "idle", 2000, linger(greeting)},
		{16, "gzip", 10, bomb},
		{17, "gets", 20, gets},
	}, floods()...), nil
}

// A victim is a server with its strangers.
type victim struct {
	addr string
	tls  *tls.Config // of the strangers; nil: plain text

	mu struct {
		sync.Mutex
		sighting
	}
}

// A sighting is what became of what strangers did.
type sighting struct {
	written int    // values that were stored at the meeting
	refused int    // calls that were refused
	let     int    // calls that were not, and had to be
	first   string // of those
	lines   int    // that a person has read
	theirs  int    // of those: with words of strangers
	spoiled string // the first line that steered the terminal
}

func (v *victim) seen() sighting {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.mu.sighting
}

// breath is the pause between two times that a stranger does something.
const breath = 50 * time.Millisecond

// attack does the rows all at once until ctx ends.
func (v *victim) attack(ctx context.Context, o options, rows []row) {
	var wg sync.WaitGroup
	for _, r := range rows {
		if !chosen(o.only, r.name) {
			continue
		}
		for range max(1, r.workers/o.fewer) {
			wg.Go(func() {
				for ctx.Err() == nil {
					_ = r.do(ctx, stranger{v, pest.Host(r.number)}) // what the server refuses, it refuses
					_ = pause.For(ctx, breath)                      // ends with ctx
				}
			})
		}
	}
	wg.Wait()
}

// greeting is how a client of HTTP/2 begins, with settings that change nothing.
const greeting = http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// linger connects, says so much and nothing more, and waits until the server closes the connection.
func linger(words string) func(context.Context, stranger) error {
	return func(ctx context.Context, s stranger) error {
		nc, err := s.Dial(ctx, s.addr)
		if err != nil {
			return err
		}
		return hold(ctx, nc, words)
	}
}

// hold sends words, and waits until the server closes the connection. All strangers share a processor: the pause after
// it leaves time for the other rows.
func hold(ctx context.Context, nc net.Conn, words string) error {
	defer context.AfterFunc(ctx, func() { nc.Close() })()
	_, err := nc.Write([]byte(words))
	for buf := make([]byte, 512); err == nil; {
		_, err = nc.Read(buf)
	}
	nc.Close()
	return pause.For(ctx, time.Second)
}

// cutHello is the first half of how a TLS handshake begins.
func cutHello() (string, error) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	var hello []byte
	done := make(chan error, 1)
	go func() {
		buf := make([]byte, 16<<10)
		n, err := theirs.Read(buf)
		hello = buf[:n/2]
		theirs.Close()
		done <- err
	}()
	if err := tls.Client(ours, &tls.Config{ServerName: "attack"}).Handshake(); err == nil {
		return "", errors.New("a handshake without a server succeeded")
	}
	err := <-done
	return string(hello), err
}

// floodFrames is how many frames a connection sends, if it gets so far.
const floodFrames = 100_000

// floods send frames without end.
func floods() []row {
	flood := func(frame pest.Frame) func(context.Context, stranger) error {
		return func(ctx context.Context, s stranger) error {
			return s.Flood(ctx, s.addr, load.Barrier, floodFrames, frame)
		}
	}
	return []row{
		{15, "resets", 1, flood(pest.RapidReset)},
		{15, "continuation", 1, flood(pest.Continuation)},
		{15, "ping", 1, flood(pest.Ping)},
		{15, "settings", 1, flood(pest.Settings)},
		{15, "empty data", 1, flood(pest.EmptyData)},
	}
}

// Gets of one connection: with 20 connections they are 10,000.
const (
	getsAtOnce = 500
	keyBytes   = 1<<20 - 64
)

// gets waits for many keys that never come, each of 1 MiB, on one connection. It ends when the server has
// answered all of them, or closed the connection.
func gets(ctx context.Context, s stranger) error {
	conn, err := grpc.NewClient(s.addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(s.Dial), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(longKeys{})))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for i := range getsAtOnce {
		wg.Go(func() {
			for ctx.Err() == nil {
				err := conn.Invoke(ctx, xlapb.CoordinationService_GetKeyValue_FullMethodName, uint64(i), new([]byte))
				if status.Code(err) != codes.ResourceExhausted {
					return
				}
				_ = pause.For(ctx, 100*time.Millisecond)
			}
		})
	}
	wg.Wait()
	return ctx.Err()
}

// longKeys makes a request for a long key of a number. All of the keys share their bytes but the first, so that
// thousands of them take the attacker little memory.
type longKeys struct{}

var longTail = make([]byte, keyBytes)

func (longKeys) Name() string { return "proto" }

func (longKeys) Marshal(v any) (mem.BufferSlice, error) {
	head := protowire.AppendTag(nil, 1, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(keyBytes+8))
	head = binary.BigEndian.AppendUint64(head, v.(uint64)&0x7f7f7f7f)
	return mem.BufferSlice{mem.SliceBuffer(head), mem.SliceBuffer(longTail)}, nil
}

func (longKeys) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// theirs is a word in every text of strangers that a person may get to see.
const theirs = "owned"

// escapes writes keys, asks for barriers, registers and tells of errors with texts that would change the terminal of
// an operator.
func escapes(ctx context.Context, _ stranger, l load.Line) error {
	for i := range 100 {
		text := fmt.Sprintf("%s\x1b[2J\x1b]0;%[1]s\a\u202e\u009b%d\r\n", theirs, i)
		from := coord.Call{Task: serry.TaskID{Job: text, Index: 99}, Incarnation: serry.Incarnation(i)}
		for _, ev := range []coord.Event{
			coord.InsertKeyValue{Key: text, Value: []byte(text), Overwrite: true},
			coord.TryGetKeyValue{Key: text + "?"},
			coord.RegisterTask{Call: from},
			coord.Barrier{Call: from, ID: text, Timeout: time.Second},
			coord.ReportError{Call: from, Code: int(codes.Internal), Text: text},
		} {
			for _, d := range []wire.Dialect{wire.XLA, wire.TF, wire.Serry} {
				if _, _, err := say(ctx, l, d, ev); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// talk makes calls again and again on one connection, of HTTP/2 or of serry's own stream, until it breaks.
func talk(stream bool, calls func(ctx context.Context, s stranger, l load.Line) error) func(context.Context, stranger) error {
	return func(ctx context.Context, s stranger) error {
		l, err := s.line(ctx, stream)
		if err != nil {
			return err
		}
		defer l.Close()
		for err == nil {
			if err = calls(ctx, s, l); err == nil {
				err = pause.For(ctx, breath)
			}
		}
		return err
	}
}

func (s stranger) line(ctx context.Context, stream bool) (load.Line, error) {
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	return load.Dial(ctx, s.addr, load.LineOptions{Stream: stream, TLS: s.tls, Connect: s.Dial})
}

// callPatience bounds the wait for a connection and for an answer. The strangers share one processor.
const callPatience = 20 * time.Second

// say makes a call in a dialect, and waits for its answer.
func say(ctx context.Context, l load.Line, d wire.Dialect, ev coord.Event) ([]byte, rpc.Status, error) {
	method, body, err := d.Request(ev)
	if err != nil {
		return nil, rpc.Status{}, err
	}
	return ask(ctx, l, method, body)
}

// ask makes a call and waits for its answer.
func ask(ctx context.Context, l load.Line, method string, body []byte) ([]byte, rpc.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	type answer struct {
		reply []byte
		st    rpc.Status
		err   error
	}
	answered := make(chan answer, 1)
	l.Start(0, method, body, func(reply []byte, st rpc.Status, err error) { answered <- answer{reply, st, err} })
	l.Flush()
	select {
	case a := <-answered:
		return a.reply, a.st, a.err
	case <-ctx.Done():
		return nil, rpc.Status{}, context.Cause(ctx)
	}
}
