package stream

import "time"

// Limits of a connection. Correct peers stay far below all of them.
const (
	maxPile = 64 << 20 // unread output of a peer that reads nothing

	stallTime = 20 * time.Second // output waits and none of it moves
	pileTime  = 5 * time.Second  // the same with more than maxPile

	maxConns      = 1 << 17 // virtual connections of a session
	maxSessions   = 1 << 17
	helloPatience = 20 * time.Second // from the preface to the hello
	maxExits      = 4096             // that a host keeps until the service has heard of them
	maxHeard      = 1 << 17          // lives that a host keeps

	defaultMaxCalls = 1 << 20
	defaultMaxBytes = 1 << 30
)
