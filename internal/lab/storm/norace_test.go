//go:build !race

package storm_test

import "time"

// longIdle is how long NEW-36 wants a job to be left in peace.
const longIdle = 10 * time.Hour

// someCliques is how many schedules of cliques are played unless a flag says otherwise.
const someCliques = 300
