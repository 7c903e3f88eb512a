// Package lockrank has mutexes with ranks. A goroutine that holds some of them locks only one whose rank is higher than those of
// all that it holds. So two goroutines cannot each hold what the other waits for.
//
// A [Mutex] has its rank by its type, so its zero value is ready. In a build with the tag lockrank every Lock is
// checked, and one in the wrong order panics: go test -tags lockrank. In any other build a Mutex is a sync.Mutex and costs
// as much.
package lockrank

// A Rank is the rank of a mutex: a type without fields.
type Rank interface{ Rank() int }
