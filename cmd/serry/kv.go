package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/pause"
)

func newKV() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kv",
		Short: "Read and write the keys that the ranks share",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return seeHelp(cmd, errors.New("want get, put, ls, rm or watch"))
		},
	}
	cmd.AddCommand(newKVGet(), newKVPut(), newKVList(), newKVRemove(), newKVWatch())
	return cmd
}

// A keyValue is a key as scripts read it: with its value as text, if it is one.
type keyValue struct {
	Version  int    `json:"version"`
	Key      string `json:"key"`
	Value    string `json:"value"`
	Base64   string `json:"base64,omitempty"` // of a value that is not text
	Revision int64  `json:"revision,omitempty"`
	Deleted  bool   `json:"deleted,omitempty"`
}

func newKeyValue(key string, value []byte) keyValue {
	if utf8.Valid(value) {
		return keyValue{Version: outputVersion, Key: key, Value: string(value)}
	}
	return keyValue{Version: outputVersion, Key: key, Base64: base64.StdEncoding.EncodeToString(value)}
}

func newKVGet() *cobra.Command {
	q := &query{}
	var wait bool
	cmd := q.command(&cobra.Command{
		Use:   "get key",
		Short: "Print the value of a key, byte for byte",
		Args:  arguments(1, 1),
	}, func(ctx context.Context, r *remote, args []string) error {
		var v coord.Value
		var err error
		if wait {
			v.Value, err = r.Wait(ctx, args[0])
		} else {
			v, err = result[coord.Value](r.call(ctx, coord.TryGetKeyValue{Key: args[0]}))
		}
		if err != nil {
			return err
		}
		if done, err := q.object(newKeyValue(args[0], v.Value)); done {
			return err
		}
		return q.showValue(v.Value)
	})
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the key has a value")
	cmd.ValidArgsFunction = q.completeKeys
	return cmd
}

// showValue prints a value as it is, but nothing on a terminal that could upset it.
func (p *printer) showValue(value []byte) error {
	text := string(value)
	if p.terminal {
		if oneLine(text) != text {
			text = strconv.Quote(text)
		}
		text += "\n"
	}
	_, err := io.WriteString(p.out, text)
	return err
}

func newKVPut() *cobra.Command {
	q := &query{}
	var create bool
	var stdin func() io.Reader
	cmd := q.command(&cobra.Command{
		Use:   "put key value",
		Short: "Give a key a value; - reads it from stdin",
		Args:  arguments(2, 2),
	}, func(ctx context.Context, r *remote, args []string) error {
		value := []byte(args[1])
		if args[1] == "-" {
			var err error
			if value, err = io.ReadAll(stdin()); err != nil {
				return err
			}
		}
		if create {
			return r.Create(ctx, args[0], value)
		}
		return r.Put(ctx, args[0], value)
	})
	stdin = cmd.InOrStdin
	cmd.Flags().BoolVar(&create, "create", false, "fail if the key has a value already")
	cmd.ValidArgsFunction = q.completeKeys
	return cmd
}

func newKVList() *cobra.Command {
	q := &query{}
	cmd := q.command(&cobra.Command{
		Use:   "ls [directory]",
		Short: "List the keys below a directory, with the sizes of their values",
		Args:  arguments(0, 1),
	}, func(ctx context.Context, r *remote, args []string) error {
		dir := ""
		if len(args) > 0 {
			dir = args[0]
		}
		keys, err := r.sizes(ctx, dir)
		if err != nil {
			return err
		}
		if done, err := q.object(struct {
			Version int             `json:"version"`
			Dir     string          `json:"dir"`
			Keys    []coord.KeySize `json:"keys"`
		}{outputVersion, dir, keys}); done {
			return err
		}
		t := &table{columns: []column{{title: "SIZE", right: true}, {title: "KEY"}}}
		for _, k := range keys {
			t.add(texts(bytesText(k.Size), k.Key)...)
		}
		return q.table(t)
	})
	cmd.ValidArgsFunction = q.completeKeys
	return cmd
}

// sizes lists the keys below a directory without their values.
func (r *remote) sizes(ctx context.Context, dir string) ([]coord.KeySize, error) {
	list, err := result[coord.Sizes](r.call(ctx, coord.ListKeys{Dir: dir}))
	return orEmpty(list.Keys), err
}

func newKVRemove() *cobra.Command {
	q := &query{}
	cmd := q.command(&cobra.Command{
		Use:   "rm key",
		Short: "Remove a key and everything below it",
		Args:  arguments(1, 1),
	}, func(ctx context.Context, r *remote, args []string) error {
		_, err := r.call(ctx, coord.DeleteKeyValue{Key: args[0]})
		return err
	})
	cmd.ValidArgsFunction = q.completeKeys
	return cmd
}

func newKVWatch() *cobra.Command {
	q := &query{}
	cmd := q.command(&cobra.Command{
		Use:   "watch [directory]",
		Short: "Print the keys below a directory, then every change of them",
		Args:  arguments(0, 1),
	}, func(ctx context.Context, r *remote, args []string) error {
		dir := ""
		if len(args) > 0 {
			dir = args[0]
		}
		for after := int64(-1); ; {
			c, err := result[coord.Changes](r.wait(ctx, coord.WatchKeys{Dir: dir, After: after}))
			if err != nil {
				return err
			}
			if c.Reset && after >= 0 {
				fmt.Fprintln(q.errors, "serry: changes were missed, or another run began; this is all there is now")
			}
			for _, change := range c.Changes {
				if err := q.change(change); err != nil {
					return err
				}
			}
			after = c.Revision
			if err := pause.For(ctx, changePause); err != nil {
				return err
			}
		}
	})
	cmd.ValidArgsFunction = q.completeKeys
	return cmd
}

// changePause gathers changes that come one after the other, and keeps a busy store from asking too
// much of the service.
const changePause = 50 * time.Millisecond

// valueShown is how many characters of a value a line about a change shows.
const valueShown = 200

func (q *query) change(c coord.Change) error {
	kv := newKeyValue(c.Key, c.Value)
	kv.Revision, kv.Deleted = c.Revision, c.Deleted
	if done, err := q.line(kv); done {
		return err
	}
	if c.Deleted {
		_, err := fmt.Fprintf(q.out, "%s %s\n", q.paint(red, "removed"), oneLine(c.Key))
		return err
	}
	value := strconv.QuoteToGraphic(string(c.Value[:min(len(c.Value), valueShown)]))
	if len(c.Value) > valueShown {
		value += fmt.Sprintf("... (%s)", bytesText(int64(len(c.Value))))
	}
	_, err := fmt.Fprintf(q.out, "%s %s = %s\n", q.paint(green, "set"), oneLine(c.Key), value)
	return err
}
