package main

import (
	"context"
	"encoding/binary"
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
	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry/bench/internal/load"
	"github.com/serry-dev/serry/bench/internal/pest"
	"github.com/serry-dev/serry/internal/pause"
	"github.com/serry-dev/serry/wire/xlapb"
)

// A row is something that a stranger does to a server, over and over.
type row struct {
	number  int // in the list of SECT-20
	name    string
	workers int // that do it at the same time
	do      func(ctx context.Context, addr string) error
}

// rows are what a stranger without any credential does. Orders at the meeting of launchers (12) are not here: a
// server has no meeting. The test of SECT-16 has them.
func rows() ([]row, error) {
	packed, err := pest.Packed(2 << 30)
	if err != nil {
		return nil, err
	}
	bomb := func(ctx context.Context, addr string) error { return pest.Bomb(ctx, addr, load.InsertKey, packed) }
	return []row{
		{14, "silent", 2000, linger("")},
		{14, "stopped in the greeting", 2000, linger(http2.ClientPreface[:8])},
		{14, "idle", 2000, linger(http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00")},
		{15, "resets", 1, flood(pest.RapidReset)},
		{15, "continuation", 1, flood(pest.Continuation)},
		{15, "ping", 1, flood(pest.Ping)},
		{15, "settings", 1, flood(pest.Settings)},
		{15, "empty data", 1, flood(pest.EmptyData)},
		{16, "gzip", 10, bomb},
		{17, "gets", 20, gets},
		{20, "escapes", 1, escapes},
	}, nil
}

// attack does all of the rows at once until ctx ends.
func attack(ctx context.Context, addr string, rows []row) {
	var wg sync.WaitGroup
	for _, r := range rows {
		for range r.workers {
			wg.Go(func() {
				for ctx.Err() == nil {
					_ = r.do(ctx, addr)                     // what the server refuses, it refuses
					_ = pause.For(ctx, 50*time.Millisecond) // ends with ctx
				}
			})
		}
	}
	wg.Wait()
}

// linger connects, says so much and nothing more, and waits until the server closes the connection.
func linger(greeting string) func(context.Context, string) error {
	return func(ctx context.Context, addr string) error {
		nc, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		if err != nil {
			return err
		}
		defer context.AfterFunc(ctx, func() { nc.Close() })()
		defer nc.Close()
		if _, err := nc.Write([]byte(greeting)); err != nil {
			return err
		}
		for buf := make([]byte, 512); err == nil; {
			_, err = nc.Read(buf)
		}
		return err
	}
}

// floodFrames is how many frames a connection sends, if it gets so far.
const floodFrames = 100_000

func flood(frame pest.Frame) func(context.Context, string) error {
	return func(ctx context.Context, addr string) error {
		return pest.Flood(ctx, addr, load.Barrier, floodFrames, frame)
	}
}

// Gets of one connection: with 20 connections they are 10,000.
const (
	getsAtOnce = 500
	keyBytes   = 1<<20 - 64
)

// gets waits for many keys that never come, each of 1 MiB, on one connection. It ends when the server has
// answered all of them, or closed the connection.
func gets(ctx context.Context, addr string) error {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(longKeys{})))
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

// escapes writes keys and asks for barriers whose names would change the terminal of an operator.
func escapes(ctx context.Context, addr string) error {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	for i := range 100 {
		name := fmt.Sprintf("\x1b[2J\x1b]0;owned\a\u202e%d\r\n", i)
		kv := &xlapb.KeyValueEntry{Key: name, Value: []byte(name)}
		for method, request := range map[string]proto.Message{
			xlapb.CoordinationService_InsertKeyValue_FullMethodName: &xlapb.InsertKeyValueRequest{Kv: kv, AllowOverwrite: true},
			xlapb.CoordinationService_TryGetKeyValue_FullMethodName: &xlapb.TryGetKeyValueRequest{Key: name + "?"},
			xlapb.CoordinationService_Barrier_FullMethodName:        &xlapb.BarrierRequest{BarrierId: name, SourceTaskId: 99},
		} {
			if err := conn.Invoke(ctx, method, request, new(xlapb.BarrierResponse)); status.Code(err) == codes.Unavailable {
				return err
			}
		}
	}
	return nil
}
