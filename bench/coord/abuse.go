package main

import (
	"context"
	"fmt"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/serry-dev/serry/bench/internal/load"
	"github.com/serry-dev/serry/bench/internal/pest"
	"github.com/serry-dev/serry/bench/internal/proc"
)

// abused measures what clients that mean harm, or only too much, cost a server: memory at its peak,
// and processor time. The cluster has one task, which is there and well all the time.
func (b *bench) abused(ctx context.Context, s *subject) error {
	if err := s.settle(ctx); err != nil {
		return err
	}
	packed, err := pest.Packed(b.plan.bomb)
	if err != nil {
		return err
	}
	for _, a := range []abuse{
		{"announcement", announcedMemory, metrics, func(ctx context.Context, addr string) error { return pest.Host(0).Announce(ctx, addr, load.Barrier) }},
		{"bomb", bombMemory, bombCPU, func(ctx context.Context, addr string) error {
			return pest.Host(0).Bomb(ctx, addr, load.Barrier, packed)
		}},
		{"rapid reset", resetMemory, resetCPU, b.flood(pest.RapidReset)},
		{"CONTINUATION", metrics, continuationCPU, b.flood(pest.Continuation)},
		{"PING", metrics, pingCPU, b.flood(pest.Ping)},
		{"SETTINGS", metrics, settingsCPU, b.flood(pest.Settings)},
		{"empty DATA", metrics, emptyDataCPU, b.flood(pest.EmptyData)},
		// The last, because what a process has held it does not give back at once.
		{"value", largeValueMemory, metrics, func(ctx context.Context, addr string) error { return largeValue(ctx, addr, b.plan.value) }},
	} {
		if err := s.suffer(ctx, a); err != nil {
			return fmt.Errorf("%s: %w", a.name, err)
		}
		if _, _, err := s.All(ctx, load.Heartbeat, s.Heartbeats()); err != nil {
			return fmt.Errorf("heartbeat of another client after %s: %w", a.name, err)
		}
	}
	return nil
}

// An abuse is something done to a server, and the rows for what that costs.
type abuse struct {
	name        string
	memory, cpu metric
	do          func(ctx context.Context, addr string) error
}

func (s *subject) suffer(ctx context.Context, a abuse) error {
	if err := forgetPeak(s.PID); err != nil {
		return err
	}
	before, _, err := proc.Memory(s.PID)
	if err != nil {
		return err
	}
	spent, err := s.spent(func() error { return a.do(ctx, s.addr) })
	if err != nil {
		return err
	}
	_, peak, err := proc.Memory(s.PID)
	s.add(a.memory, mib(max(0, peak-before)))
	s.add(a.cpu, ms(spent))
	return err
}

// forgetPeak lets the peak of a process's memory be that of now.
func forgetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}

// largeValue sets a key to a value of many bytes, and deletes it.
func largeValue(ctx context.Context, addr string, size int) error {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(rawCodec{}), grpc.MaxCallSendMsgSize(1<<31-1)))
	if err != nil {
		return err
	}
	defer conn.Close()
	entry := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "large")
	entry = protowire.AppendVarint(protowire.AppendTag(entry, 2, protowire.BytesType), uint64(size))
	request := protowire.AppendVarint(protowire.AppendTag(nil, 2, protowire.BytesType), uint64(len(entry)+size))
	request = append(append(make([]byte, 0, len(request)+len(entry)+size), request...), entry...)
	request = request[:cap(request)]
	return conn.Invoke(ctx, load.InsertKey, &request, new([]byte))
}

// rawCodec passes messages as they are.
type rawCodec struct{}

func (rawCodec) Name() string                    { return "proto" }
func (rawCodec) Marshal(v any) ([]byte, error)   { return *v.(*[]byte), nil }
func (rawCodec) Unmarshal(b []byte, v any) error { *v.(*[]byte) = b; return nil }

// flood sends frames, so many as the plan says, or until the server closes the connection.
func (b *bench) flood(frame pest.Frame) func(context.Context, string) error {
	return func(ctx context.Context, addr string) error {
		return pest.Host(0).Flood(ctx, addr, load.Barrier, b.plan.flood, frame)
	}
}
