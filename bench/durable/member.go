package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/serry-dev/serry/bench/internal/fleet"
	"github.com/serry-dev/serry/bench/internal/load"
	"github.com/serry-dev/serry/bench/internal/proc"
	"github.com/serry-dev/serry/store/member"
)

// memberCommand is the first argument of a process that is an etcd member.
const memberCommand = "member"

// serveMember is the whole life of such a process: the same member as inside serry, and nothing else.
func serveMember(ctx context.Context, args []string, out io.Writer) error {
	fs := flag.NewFlagSet(memberCommand, flag.ContinueOnError)
	name := fs.String("name", "", "its own")
	peers := fs.String("peers", "", "all of them, as name=address,...")
	dir := fs.String("dir", "", "its folder")
	if err := fs.Parse(args); err != nil {
		return err
	}
	cfg := member.Config{Name: *name, Dir: *dir, Peers: make(map[string]string)}
	for part := range strings.SplitSeq(*peers, ",") {
		name, address, _ := strings.Cut(part, "=")
		cfg.Peers[name] = address
	}
	m, err := member.Start(ctx, cfg)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "member: serving on unix:%s\n", filepath.Join(*dir, "client.sock"))
	<-ctx.Done()
	return m.Close()
}

// startMembers starts three members, each a process.
func startMembers(ctx context.Context, self, dir string) (_ *service, err error) {
	addresses, err := fleet.FreeAddresses(servers)
	if err != nil {
		return nil, err
	}
	var peers []string
	for i, a := range addresses {
		peers = append(peers, fmt.Sprintf("m%d=%s", i, a))
	}
	members := make([]*proc.Process, servers)
	stop := func() {
		for _, m := range members {
			if m != nil {
				m.Kill()
			}
		}
	}
	errs := make([]error, servers)
	var wg sync.WaitGroup
	for i := range members { // each waits for a majority
		wg.Go(func() {
			name := fmt.Sprintf("m%d", i)
			members[i], errs[i] = proc.Start(ctx, self, memberCommand, "-name", name, "-dir", filepath.Join(dir, name), "-peers", strings.Join(peers, ","))
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		stop()
		return nil, err
	}
	svc := &service{stop: stop}
	var endpoints []string
	for _, m := range members {
		address, err := m.Address()
		if err != nil {
			stop()
			return nil, err
		}
		endpoints = append(endpoints, address)
		svc.pids = append(svc.pids, m.PID)
	}
	svc.write = byHand(endpoints)
	return svc, nil
}

// byHand writes as a program would that keeps its state in etcd itself: one put for each call. As with
// the other peers, every writer has a connection of its own; and as etcd's client is used, it is told of
// all members.
func byHand(endpoints []string) writer {
	value := strings.Repeat("v", load.ValueBytes)
	return func(ctx context.Context, writers int, measure func(*atomic.Int64) error) error {
		var puts atomic.Int64
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		errs := make([]error, writers)
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				if errs[w] = putAll(ctx, endpoints, w, value, &puts); errs[w] != nil {
					stop()
				}
			})
		}
		err := measure(&puts)
		stop()
		wg.Wait()
		return errors.Join(append(errs, err)...)
	}
}

// putAll writes keys, one after the other, until ctx ends.
func putAll(ctx context.Context, endpoints []string, writer int, value string, puts *atomic.Int64) error {
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer client.Close()
	for i := 0; ; i++ {
		_, err := client.Put(ctx, putKey(writer, i), value)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		puts.Add(1)
	}
}
