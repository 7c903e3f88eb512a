package export_test

import (
	"fmt"
	"log"
	"os"

	"github.com/serry-dev/serry/export"
	"github.com/serry-dev/serry/mesh"
)

// A vector of 32 elements was exported over four devices with an axis a. It is bound to the devices 2 to 5.
func ExampleBind() {
	data, err := os.ReadFile("testdata/vector-0.12.jax")
	if err != nil {
		log.Fatal(err)
	}
	program, err := export.ReadJAX("vector-0.12.jax", data)
	if err != nil {
		log.Fatal(err)
	}
	devices, err := mesh.New(mesh.Hosts(6, 3)[2:], mesh.Axis{Name: "a", Size: 4})
	if err != nil {
		log.Fatal(err)
	}
	bound, err := export.Bind(program, []export.Supplied{{Mesh: devices}}, export.Options{})
	if err != nil {
		log.Fatal(err)
	}
	shards, err := bound.Inputs[0].LocalShards(1) // the part of task 1
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range shards {
		fmt.Printf("device %d holds %v\n", s.Device, s.Index)
	}
	// Output:
	// device 2 holds [0:8]
	// device 3 holds [8:16]
}
