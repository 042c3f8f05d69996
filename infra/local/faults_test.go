package local

import (
	"encoding/base64"
	"encoding/hex"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/lambda"

	"payhook.example/infra/cmd/payhook/commands"
	"payhook.example/shared/paymenttest"
)

// Calls of real functions fail before and after they took effect or are throttled, and functions
// are killed: what was accepted arrives, with the bytes that were signed, and has a proof. The simulation plays
// the same with every single effect, and explains each event that arrives twice.
func (f *fixture) testFaults(t *testing.T) {
	const deliveries, each, senders = 80, 5, 8
	kill := f.killer(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random, calls, done := rand.New(rand.NewPCG(seed, 0)), 0, map[fault]int{}
	f.proxy.decide(func(operation string) fault { // one call at a time
		if !slices.Contains([]string{"PutItem", "UpdateItem", "ExecuteStatement", "BatchExecuteStatement", "PutEvents",
			"Query", "GetItem",
			"PutObject"}, operation) {
			return ""
		}
		if calls++; calls%200 == 0 {
			go kill()
		}
		if random.IntN(8) > 0 {
			return ""
		}
		what := []fault{failed, throttled, cutBefore, cutAfter}[random.IntN(4)]
		done[what]++
		return what
	})
	defer f.proxy.decide(forwarded)

	var mu sync.Mutex
	signed := map[string]string{} // by the eventId of what was answered 2xx
	accepted := 0
	work := make(chan struct{}, deliveries)
	for range deliveries {
		work <- struct{}{}
	}
	close(work)
	var running sync.WaitGroup
	for range senders {
		running.Go(func() {
			for range work {
				events := paymenttest.Events(each)
				got, err := f.machine.service.Send(t.Context(),
					paymenttest.Webhook{URL: f.Stack.WebhookURL, Payload: paymenttest.Delivery(events...)})
				if got.Status/100 == 4 {
					t.Errorf("answered %d %s", got.Status, got.Body)
				}
				if err != nil || got.Status/100 != 2 {
					continue
				}
				mu.Lock()
				accepted++
				for _, e := range events {
					signed[e.EventID] = string(paymenttest.Encode(e))
				}
				mu.Unlock()
			}
		})
	}
	running.Wait()
	f.proxy.decide(forwarded)
	f.drain(t)

	t.Logf("%d of %d deliveries accepted; faults: %v, %d calls", accepted, deliveries, done, calls)
	if accepted < deliveries/3 || len(done) < 4 || calls < 200 {
		t.Error("too few were accepted, or too few faults happened")
	}
	var ids []string
	for id := range signed {
		ids = append(ids, id)
	}
	arrived := f.awaitReleased(t, ids...)
	recorded := map[string]bool{} // the eventIds in the evidence
	if err := commands.Scan(t.Context(), f.Stack.S3(), f.Stack.EvidenceBucket, commands.Section{}, func(
		o commands.Object) {
		if o.Err != nil {
			t.Error(o.Err)
		}
		for _, id := range o.Proof.EventIDs {
			recorded[id] = true
		}
	}); err != nil {
		t.Fatal(err)
	}
	for id, want := range signed {
		if got := string(arrived[id]); got != want || !recorded[id] {
			t.Errorf("event %s arrived as %s, want %s; in the evidence: %t", id, got, want, recorded[id])
		}
	}
}

// killer returns what kills the processes that run the webhook function.
func (f *fixture) killer(t *testing.T) func() {
	t.Helper()
	name := f.Stack.Functions["webhook"]
	out, err := lambda.NewFromConfig(f.Stack.AWS).GetFunction(t.Context(),
		&lambda.GetFunctionInput{FunctionName: &name})
	if err != nil {
		t.Fatal(err)
	}
	digest, err := base64.StdEncoding.DecodeString(*out.Configuration.CodeSha256)
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		// The emulator unpacks a function into a folder that is named by its digest.
		for _, line := range processes(f.machine.emulator.Folder) {
			number, command, _ := strings.Cut(strings.TrimSpace(line), " ")
			if pid, err := strconv.Atoi(number); err == nil && strings.Contains(command, hex.EncodeToString(digest)) {
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone already
			}
		}
	}
}
