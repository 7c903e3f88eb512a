package collective

// The ranks of the locks of this package. A goroutine takes them in this order only, and locks of links behind all of them
// (CL-ORD-13). None but that of a clique is held while a frame is handed to a link, and none at all while a clique,
// a link or the service is waited for.
type (
	requestsLock  struct{} // of Requests
	groupLock     struct{}
	runsLock      struct{} // of the cliques that runs hold
	cliqueLock    struct{}
	commLock      struct{}
	remoteLock    struct{} // of the one-sided operations of a rank
	windowLock    struct{}
	operationLock struct{}
	mailboxLock   struct{}
	scratchLock   struct{}
	queriesLock   struct{} // of the questions for records
)

func (requestsLock) Rank() int  { return 1 }
func (groupLock) Rank() int     { return 2 }
func (runsLock) Rank() int      { return 3 }
func (cliqueLock) Rank() int    { return 4 }
func (commLock) Rank() int      { return 5 }
func (remoteLock) Rank() int    { return 6 }
func (windowLock) Rank() int    { return 7 }
func (operationLock) Rank() int { return 8 }
func (mailboxLock) Rank() int   { return 9 }
func (scratchLock) Rank() int   { return 10 }
func (queriesLock) Rank() int   { return 11 }
