package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/link"
)

// linkCommand is a task that links itself to all others, sends each of them 1,000 bytes and takes as many, and then waits
// for a signal.
const linkCommand = "link-task"

func linkTask() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := joinAndLink(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func joinAndLink(ctx context.Context) error {
	cfg, _, err := client.ConfigFromEnv()
	if err != nil {
		return err
	}
	m, err := client.Join(ctx, cfg)
	if err != nil {
		return err
	}
	defer m.Close()
	n, err := link.Open(ctx, m, m.KV(), link.Options{})
	if err != nil {
		return err
	}
	defer func() {
		brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute) // the service may be gone
		defer cancel()
		n.Close(brief)
	}()
	if err := exchangeWithAll(ctx, m, n); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// exchangeWithAll sends to all other tasks, and takes what they send.
func exchangeWithAll(ctx context.Context, m *client.Member, n *link.Net) error {
	s, err := m.Tasks(ctx)
	if err != nil {
		return err
	}
	for _, t := range s.Tasks {
		if t.Task == m.Task() {
			continue
		}
		l, err := n.Link(ctx, serry.Life{Task: t.Task, Incarnation: t.Incarnation})
		if err != nil {
			return err
		}
		h := link.Header{Family: link.Collective, Type: link.CollectiveData, Stream: 1}
		came, err := l.Expect(h, make([]byte, 1000))
		if err != nil {
			return err
		}
		if _, err := l.Post(h, make([]byte, 1000)); err != nil {
			return err
		}
		if err := came.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}
