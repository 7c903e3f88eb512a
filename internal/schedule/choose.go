package schedule

import "math"

// Sizes at which the choice changes.
const (
	tinyBytes   = 4 << 10
	smallBytes  = 64 << 10
	middleBytes = 256 << 10
	fewRanks    = 8
	manyRanks   = 64
	tinyPair    = 256 // bytes from one rank to another
	leastPiece  = 64 << 10
	maxPieces   = 256
)

// Choose is the algorithm for a vector of so many bytes between processes that speak over sockets, and the job
// with what it needs for it. All ranks choose alike, since they know the same (CL-ALG-1).
func Choose(j Job, bytes int64) (Algorithm, Job) {
	a := choose(j, bytes)
	return a, Pipelined(a, j, bytes)
}

// Ordered is the algorithm that reduces each element in the order of ranks, for an all-reduce or a reduce-scatter.
func Ordered(j Job, bytes int64) Algorithm {
	if j.Op == AllReduce && bytes <= tinyBytes {
		return OneShot
	}
	return Direct
}

// Pipelined is the job with as many pieces as an algorithm makes of a vector of so many bytes.
func Pipelined(a Algorithm, j Job, bytes int64) Job {
	j.Pieces = 0
	if a == Chain || a == DoubleTree {
		j.Pieces = pieces(bytes, j.Ranks)
	}
	return j
}

func choose(j Job, bytes int64) Algorithm {
	switch j.Op {
	case AllReduce:
		return chooseAllReduce(j, bytes)
	case ReduceScatter:
		return bySize(bytes, Direct, Halving, Ring)
	case AllGather:
		return bySize(bytes, Bruck, Bruck, Ring)
	case AllToAll:
		return chooseExchange(j, bytes)
	case Broadcast:
		if bytes > middleBytes && j.Ranks <= fewRanks {
			return Chain
		}
		return bySize(bytes, Tree, Spread, Spread)
	case Reduce:
		return bySize(bytes, Tree, Spread, Spread)
	case Gather, Scatter:
		return bySize(bytes, Tree, Direct, Direct)
	default:
		return Dissemination
	}
}

// bySize chooses by the size of the vector alone.
func bySize(bytes int64, small, middle, large Algorithm) Algorithm {
	switch {
	case bytes <= tinyBytes:
		return small
	case bytes <= middleBytes:
		return middle
	default:
		return large
	}
}

func chooseAllReduce(j Job, bytes int64) Algorithm {
	switch few := j.Ranks <= fewRanks; {
	case few && bytes <= tinyBytes:
		return OneShot
	case bytes <= tinyBytes/2:
		return Doubling
	case j.Hosts > 1 && j.Ranks > j.Hosts:
		return TwoLevel
	case few && bytes <= smallBytes:
		return Direct
	case !few && bytes <= middleBytes:
		return Halving
	case j.Ranks <= manyRanks:
		return Ring
	default:
		return DoubleTree
	}
}

func chooseExchange(j Job, bytes int64) Algorithm {
	switch {
	case j.Ranks > fewRanks && bytes/int64(j.Ranks) <= tinyPair:
		return Bruck
	case bytes <= smallBytes && j.Ranks <= fewRanks:
		return Direct
	default:
		return Pairwise
	}
}

// pieces is into how many pieces a pipeline of so many ranks cuts a vector: smaller ones fill it sooner, but each
// costs a message. The best size of a piece is sqrt(bytes * latency / (stages * time of a byte)).
func pieces(bytes int64, ranks int) int {
	stages := float64(max(1, ranks-2))
	best := math.Sqrt(float64(bytes) * float64(TCP.Latency) / (stages * TCP.Byte))
	return min(maxPieces, max(1, int(float64(bytes)/max(best, leastPiece))))
}
