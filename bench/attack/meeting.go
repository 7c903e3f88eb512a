package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/serry-dev/serry/bench/internal/load"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire"
)

// meetingRows are what a stranger without any credential does where launchers meet.
func meetingRows(cutHello string) []row {
	return append([]row{
		{12, "nonsense", 4, talk(false, nonsense)},
		{14, "silent", 2000, linger("")},
		{14, "stopped in a handshake", 2000, linger(cutHello)},
	}, floods()...)
}

// Values that no launcher of this job writes: in keys of hellos, in orders for the launcher of node 1, and in
// messages of it. Each launcher checks what it reads (SEC-61). The meeting is plain text and trusts what makes sense,
// so there is none of that here.
var (
	oddHellos = [][2]string{
		{"hello/-1", `{"Tasks":2,"Nodes":2}`},
		{"hello/1000000000", `{"Tasks":2,"Nodes":2}`},
		{"hello/0", `{"Tasks":2,"Nodes":2}`},
		{"hello/+1", `{"Tasks":2,"Nodes":2}`},
		{"hello/x/1", `{"Tasks":2,"Nodes":2}`},
		{"hello/1", `{"Tasks":`},
		{"hello/1", `{"Tasks":7,"Nodes":2,"Incarnation":5,"Host":"\u001b]0;owned\u0007"}`},
	}
	oddOrders = []string{
		`{"Start":{"Task":2,"Tasks":4,"Local":0,"Locals":0,"Node":1,"Nodes":2,"Attempt":1,"Life":2},"Address":"127.0.0.1:1"}`,
		`{"Start":{"Task":1000000000,"Tasks":4,"Local":0,"Locals":2,"Node":1,"Nodes":2,"Attempt":1,"Life":2},"Address":"127.0.0.1:1"}`,
		`{"Start":{"Task":2,"Tasks":4,"Local":0,"Locals":2,"Node":-1,"Nodes":2,"Attempt":1,"Life":2},"Address":"127.0.0.1:1"}`,
		`{"Start":{"Task":2,"Tasks":4,"Local":0,"Locals":2,"Node":1,"Nodes":2,"Attempt":1,"Life":2},"Address":"elsewhere:1"}`,
		`{"Start":{"Task":2,"Tasks":4,"Local":0,"Locals":2,"Node":1,"Nodes":2,"Attempt":1,"Life":2},"Address":"127.0.0.1:1","Secret":"AAAA"}`,
		`{"Signal":63}`, `{"Signal":-9}`, `{"End":true}`, `[]`,
		`{"Over":{"Tasks":2,"Later":[null]}}`, `{"Over":{"Tasks":2,"First":{"Task":77,"Attempt":1,"Life":1}}}`,
	}
	oddMessages = []string{
		`{"Died":{"Task":-1,"Attempt":1,"Life":1,"Cause":{"code":1}}}`,
		`{"Died":{"Task":99999,"Attempt":1,"Life":1,"Cause":{"code":1}}}`,
		`{"Died":{"Task":2,"Attempt":1,"Life":1,"Cause":{"code":1},"Also":[99999]}}`,
		`{"Died":{"Task":2,"Attempt":1,"Life":1,"Cause":{"code":256}}}`,
		`{"Died":{"Task":2,"Attempt":1,"Life":1,"After":-5,"Cause":{"code":1}}}`,
		`{"Left":{"Task":99999,"Attempt":1,"Life":1}}`,
		`{"Retiring":63}`, `{"Died": "x`,
	}
)

// oddQueue is into how many places of a queue strangers write: the next one is among them.
const oddQueue = 8

// nonsense writes such values at the meeting. It replaces hellos, and fills places in queues before launchers do.
func nonsense(ctx context.Context, s stranger, l load.Line) error {
	write := func(key, value string) error {
		_, st, err := say(ctx, l, wire.XLA, coord.InsertKeyValue{Key: key, Value: []byte(value), Overwrite: strings.HasPrefix(key, "hello/")})
		if err == nil && st.OK() {
			s.mu.Lock()
			s.mu.written++
			s.mu.Unlock()
		}
		return err
	}
	for _, h := range oddHellos {
		if err := write(h[0], h[1]); err != nil {
			return err
		}
	}
	all, err := lives(ctx, l)
	if err != nil || len(all) != nodes {
		return errors.Join(err, fmt.Errorf("%d launchers", len(all)))
	}
	for direction, values := range map[string][]string{"to": oddOrders, "from": oddMessages} {
		for i, value := range values {
			for number := range oddQueue {
				if err := write(fmt.Sprintf("%s/1/%x/%d", direction, uint64(all[1].Incarnation), (number+i)%oddQueue), value); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
