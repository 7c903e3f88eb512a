package history

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"pgregory.net/rapid"
)

// Many calls without an answer that are alike are judged in no time, whether the history is true or not.
func TestManyWithoutAnswer(t *testing.T) {
	var calls []KeyCall
	for i := range 40 {
		calls = append(calls, KeyCall{Span: Span{Call: Moment(i + 1)}, Action: Increment, Key: "n", Value: "1"})
	}
	for found, valid := range map[string]bool{"": true, "17": true, "40": true, "41": false} {
		got := KeyCall{Span: Span{50, 51}, Action: Get, Key: "n", Found: found, Absent: found == ""}
		if err := CheckKeys(append(calls, got)); (err == nil) != valid || errors.Is(err, ErrTooLong) {
			t.Errorf("40 increments, and the value is %q: %v; want that to be true: %v", found, err, valid)
		}
	}
}

// A history that takes too long is said to be so, by its key.
func TestTooLong(t *testing.T) {
	var calls []KeyCall
	for i := range 40 {
		calls = append(calls, KeyCall{Span: Span{Call: Moment(i + 1)}, Action: Overwrite, Key: "k", Value: strconv.Itoa(i)})
	}
	calls = append(calls, KeyCall{Span: Span{50, 51}, Action: Get, Key: "k", Found: "no such value"})
	if err := checkKeys(calls, 10*time.Millisecond); !errors.Is(err, ErrTooLong) || !strings.Contains(err.Error(), `key "k"`) {
		t.Errorf("CheckKeys() = %v; want %v of key k", err, ErrTooLong)
	}
}

// That calls which are alike are tried in one order alone changes no verdict.
func TestAlike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		calls := rapid.SliceOfN(rapid.Custom(drawCall), 1, 9).Draw(t, "calls")
		ops := make([]porcupine.Operation, len(calls))
		for i, c := range calls {
			ops[i] = porcupine.Operation{ClientId: i, Input: c, Call: int64(c.Call), Output: c, Return: int64(c.end())}
		}
		want := porcupine.CheckOperationsTimeout(porcupine.Model{
			Init: func() any { return keyState{} },
			Step: func(state, _, call any) (bool, any) { return state.(keyState).step(call.(KeyCall)) },
		}, ops, 0)
		if got := linearizable(calls, 0); got != want {
			t.Errorf("with calls that are alike in order: %v; want %v of\n%s", got, want, lines(calls))
		}
	})
}

// drawCall draws a call, two in three without an answer.
func drawCall(t *rapid.T) KeyCall {
	c := KeyCall{Key: "k", Action: rapid.SampledFrom([]KeyAction{Insert, Overwrite, Increment, Delete, Swap}).Draw(t, "action")}
	c.Call = Moment(rapid.IntRange(1, 9).Draw(t, "call"))
	number := rapid.SampledFrom([]string{"1", "2"})
	if c.Action != Delete {
		c.Value = number.Draw(t, "value")
	}
	if c.Action == Swap {
		c.Old = number.Draw(t, "old")
	}
	if rapid.IntRange(0, 2).Draw(t, "answered") > 0 {
		return c
	}
	c.Return = c.Call + Moment(rapid.IntRange(1, 5).Draw(t, "lasts"))
	c.Exists = c.Action == Insert && rapid.Bool().Draw(t, "exists")
	c.Other = c.Action == Swap && rapid.Bool().Draw(t, "other")
	if c.Action == Increment {
		c.Found = rapid.SampledFrom([]string{"1", "2", "3", "4"}).Draw(t, "found")
	}
	return c
}
