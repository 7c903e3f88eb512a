package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/collective/gauge"
	"github.com/serry-dev/serry/link"
	"github.com/serry-dev/serry/memory"
)

// rankCommand makes this program a rank of serry. The variables of a task say which.
const rankCommand = "rank"

// orderBytes is the length of an order, padded.
const orderBytes = 64

// arenaBytes is the size of the arena of a rank. Memory that is not used takes none of the machine.
const arenaBytes = 2 * gauge.MaxBytes

// envOver tells a rank of serry which way to use.
const envOver = "SERRY_BENCH_OVER"

// ourRanks is the commands of the ranks of serry.
func ourRanks(over string, ranks int, address, unrecorded string) (all [][]string) {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	for r := range ranks {
		all = append(all, []string{"/usr/bin/env", "SERRY_ADDRESS=" + address, envOver + "=" + over, envUnrecorded + "=" + unrecorded, "SERRY_TASK=" + strconv.Itoa(r), "SERRY_TASKS=" + strconv.Itoa(ranks), self, rankCommand})
	}
	return all
}

// beRank is one rank: what peer.py is for the others.
func beRank(ctx context.Context, in io.Reader, out io.Writer) error {
	cfg, tasks, err := client.ConfigFromEnv()
	if err != nil {
		return err
	}
	g, n, closeAll, err := open(ctx, cfg, collective.Options{LinksOnly: os.Getenv(envOver) == overLinks})
	if err != nil {
		return err
	}
	defer closeAll()
	r, err := newRank(ctx, g, n, tasks)
	if err != nil {
		return err
	}
	if os.Getenv(envOver) == overArena {
		if r.arena, err = memory.NewArena(arenaBytes, memory.ArenaOptions{HugePages: true}); err != nil {
			return err
		}
		defer r.arena.Close()
	}
	return r.obey(ctx, bufio.NewScanner(in), out)
}

// open makes this process a member of a job, with links and a group.
func open(ctx context.Context, cfg client.Config, opt collective.Options) (g *collective.Group, n *link.Net, closeAll func(), err error) {
	m, err := client.Join(ctx, cfg)
	if err != nil {
		return nil, nil, nil, err
	}
	if n, err = link.Open(ctx, m, m.KV(), link.Options{Plain: true}); err != nil {
		m.Close()
		return nil, nil, nil, err
	}
	if g, err = collective.New(m, n, opt); err != nil {
		n.Close(ctx)
		m.Close()
		return nil, nil, nil, err
	}
	return g, n, func() {
		g.Close(ctx)
		n.Close(ctx)
		m.Close()
	}, nil
}

// obey carries out orders until there are no more.
func (r *rank) obey(ctx context.Context, orders *bufio.Scanner, out io.Writer) error {
	if r.Rank() == 0 {
		fmt.Fprintln(out, ready)
	}
	for {
		w, err := order(ctx, r.Comm, orders)
		if err != nil || w == (gauge.Work{}) {
			return err
		}
		took, err := r.measure(ctx, w)
		if err != nil {
			return err
		}
		if r.Rank() == 0 {
			fmt.Fprintf(out, "%.9f\n", took.Seconds())
		}
	}
}

// order is the next order: rank 0 reads it and tells it to all others. A zero one means that there are no more.
func order(ctx context.Context, c *collective.Comm, orders *bufio.Scanner) (w gauge.Work, err error) {
	text := make([]byte, orderBytes)
	if c.Rank() == 0 && orders.Scan() {
		copy(text, orders.Bytes())
	}
	r := memory.Of(text)
	if err := c.Do(ctx, collective.Broadcast{Out: r, In: r, Count: orderBytes, Type: memory.U8}); err != nil {
		return w, err
	}
	if text = bytes.TrimRight(text, "\x00"); len(text) == 0 {
		return w, nil
	}
	_, err = fmt.Sscan(string(text), &w.Op, &w.Bytes, &w.Count)
	return w, err
}
