// The load of npm run bench with the client library that kubelet has. It makes one call again and again, to each of several sides in
// turn, and measures how long each takes.
//
// Reads one JSON object from the standard input (type plan), and prints one to the standard output: the results by side.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"math"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
)

const (
	// Short enough for a burst of other work on the machine to hit all sides, long enough for the edges of a batch not to matter.
	batch         = 50 * time.Millisecond
	warmUpShare   = 0.15
	callTimeout   = 2 * time.Minute
	maxMessage    = 16 << 20
	ticksInSecond = 100 // USER_HZ, the unit of times in /proc
)

type plan struct {
	Sides []struct {
		Name   string
		Socket string
		// The process whose CPU time is measured; 0 for none.
		Pid int
	}
	// "/runtime.v1.RuntimeService/Version"
	Path string
	// The encoded request. JSON has it in base64.
	Request  []byte
	InFlight int
	// Of all sides together, without the warm-up.
	Seconds float64
	// A new connection for each call, opened and closed.
	Connect bool
	// Between the starts of two calls; 0 for none.
	IntervalMs float64
}

type result struct {
	P50us float64 `json:"p50us"`
	P99us float64 `json:"p99us"`
	// Calls per second, while calls were made.
	Rps   float64 `json:"rps"`
	Calls int     `json:"calls"`
	// CPU time of the process for one call, or null.
	CpuUs *float64 `json:"cpuUs"`
}

// A side under load.
type side struct {
	name       string
	socket     string
	pid        int
	connection *grpc.ClientConn
	samples    []float64 // microseconds
	busy       time.Duration
	cpuBefore  float64
}

// Passes messages on as bytes, so that the client costs as little as grpc-go can.
type rawCodec struct{}

func (rawCodec) Marshal(message any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*message.(*[]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, message any) error {
	*message.(*[]byte) = data.Materialize()
	return nil
}

// The name is the subtype of the content type, and kubelet's calls have none.
func (rawCodec) Name() string { return "" }

// Connects as kubelet does (k8s.io/cri-client), when the first call is made.
func dial(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(func(ctx context.Context, path string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallRecvMsgSize(maxMessage)))
}

func call(connection *grpc.ClientConn, given *plan) error {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	var response []byte
	return connection.Invoke(ctx, given.Path, &given.Request, &response)
}

func connectAndCall(socket string, given *plan) error {
	connection, err := dial(socket)
	if err != nil {
		return err
	}
	defer connection.Close()
	return call(connection, given)
}

// Calls one side for the time of a batch, with this many calls in flight.
func (one *side) run(given *plan) error {
	begin := time.Now()
	end := begin.Add(batch)
	samples := make([][]float64, given.InFlight)
	failures := make([]error, given.InFlight)
	var all sync.WaitGroup
	for worker := range given.InFlight {
		all.Add(1)
		go func() {
			defer all.Done()
			for {
				start := time.Now()
				if given.Connect {
					failures[worker] = connectAndCall(one.socket, given)
				} else {
					failures[worker] = call(one.connection, given)
				}
				now := time.Now()
				samples[worker] = append(samples[worker], float64(now.Sub(start).Nanoseconds())/1000)
				if failures[worker] != nil || !now.Before(end) {
					return
				}
				if given.IntervalMs > 0 {
					time.Sleep(time.Until(start.Add(time.Duration(given.IntervalMs * float64(time.Millisecond)))))
				}
			}
		}()
	}
	all.Wait()
	one.busy += time.Since(begin)
	for worker := range given.InFlight {
		if failures[worker] != nil {
			return fmt.Errorf("%s, %s: %w", one.name, given.Path, failures[worker])
		}
		one.samples = append(one.samples, samples[worker]...)
	}
	return nil
}

// Returns the CPU time of a process and all its threads so far, in microseconds: utime + stime of proc_pid_stat(5).
func cpuMicroseconds(pid int) (float64, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The program name in parentheses may contain any character.
	fields := strings.Fields(string(stat)[strings.LastIndex(string(stat), ")")+1:])
	var ticks float64
	for _, field := range fields[11:13] {
		number, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return 0, err
		}
		ticks += number
	}
	return ticks * 1e6 / ticksInSecond, nil
}

// The smallest value that at least this share of all values does not exceed. The values are in ascending order.
func percentile(sorted []float64, share float64) float64 {
	return sorted[max(0, int(math.Ceil(share*float64(len(sorted))))-1)]
}

func (one *side) result() (result, error) {
	slices.Sort(one.samples)
	count := len(one.samples)
	found := result{
		P50us: percentile(one.samples, 0.5),
		P99us: percentile(one.samples, 0.99),
		Rps:   float64(count) / one.busy.Seconds(),
		Calls: count,
	}
	if one.pid != 0 {
		now, err := cpuMicroseconds(one.pid)
		if err != nil {
			return found, err
		}
		each := (now - one.cpuBefore) / float64(count)
		found.CpuUs = &each
	}
	return found, nil
}

// Runs all sides in turn, in batches. The order alternates, because each side finds the machine as the previous one left it.
func alternate(sides []*side, given *plan, time float64, least int) error {
	rounds := max(least, int(math.Round(time/(batch.Seconds()*float64(len(sides))))))
	for range rounds {
		for _, one := range sides {
			if err := one.run(given); err != nil {
				return err
			}
		}
		slices.Reverse(sides)
	}
	return nil
}

func measure(given *plan) (map[string]result, error) {
	sides := make([]*side, 0, len(given.Sides))
	for _, at := range given.Sides {
		connection, err := dial(at.Socket)
		if err != nil {
			return nil, err
		}
		defer connection.Close()
		sides = append(sides, &side{name: at.Name, socket: at.Socket, pid: at.Pid, connection: connection})
	}
	if err := alternate(sides, given, given.Seconds*warmUpShare, 1); err != nil {
		return nil, err
	}
	for _, one := range sides {
		one.samples, one.busy = nil, 0
		if one.pid == 0 {
			continue
		}
		before, err := cpuMicroseconds(one.pid)
		if err != nil {
			return nil, err
		}
		one.cpuBefore = before
	}
	if err := alternate(sides, given, given.Seconds, 2); err != nil {
		return nil, err
	}
	results := map[string]result{}
	for _, one := range sides {
		found, err := one.result()
		if err != nil {
			return nil, err
		}
		results[one.name] = found
	}
	return results, nil
}

func main() {
	log.SetFlags(0)
	var given plan
	if err := json.NewDecoder(os.Stdin).Decode(&given); err != nil {
		log.Fatal("the plan: ", err)
	}
	results, err := measure(&given)
	if err != nil {
		log.Fatal(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(results); err != nil {
		log.Fatal(err)
	}
}
