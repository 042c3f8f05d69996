// Package acceptance deploys Payhook, a consumer and a simulated payment service under the
// names of one run, shows what Payhook promises, reports each result, and removes
// everything that it deployed. It does so in an account of AWS, and in an emulator.
//
// It guarantees that it changes and removes only what has the tag of the run and a name of
// the run, and that a result is passed only if it was observed: a row that a target cannot
// show is reported as not shown, with the reason. The private keys that sign webhooks do
// not leave this process.
package acceptance

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"payhook.example/infra/bench/result"
	"payhook.example/infra/local"
)

// The names of a run. CloudFormation gives resources without a name one that starts with
// the stack's name.
const (
	// RunTag is the tag of everything that a run deploys. Its value is the id of the run.
	RunTag = "payhook:acceptance-run"
	prefix = "PayhookAcceptance-"
)

var runID = regexp.MustCompile(`^[a-z0-9]{8}$`)

func newRunID() string { return strings.ToLower(rand.Text()[:8]) }

// stacks are the stacks of a run, in the order in which they are deleted.
type stacks struct{ consumer, receiver, payhook, service string }

func stacksOf(id string) stacks {
	return stacks{prefix + id + "-Consumer", prefix + id + "-Receiver", prefix + id, prefix + id + "-Service"}
}

// receiverBus is the name of the bus that the consumer sends events to.
func receiverBus(id string) string { return strings.ToLower(prefix) + id + "-receiver" }

// Target is where a run deploys.
type Target struct {
	Name    string // for people
	AWS     aws.Config
	Account string
	// Endpoint is the endpoint of the emulator; "" for AWS.
	Endpoint string
	// Environment is that of the CDK CLI.
	Environment []string
	// Lacks are the needs of rows that the target does not have, each with the reason.
	Lacks map[local.Need]string
	// Client makes calls to URLs of the target.
	Client *http.Client
	// Pass makes time pass for CloudWatch; nil if it does by itself.
	Pass func(context.Context, time.Duration) error
}

// emulated reports whether the target is an emulator.
func (t Target) emulated() bool { return t.Endpoint != "" }

// Options are the options of a run.
type Options struct {
	Top      string            // the folder of go.mod
	State    string            // the folder for logs and templates, of one run
	Settings map[string]string // of Payhook's stack, by their keys
	Keep     bool              // remove nothing at the end
	Version  string            // of Payhook, for the report
	Out      io.Writer         // for the progress

	bench *result.File // nil: nothing to compare with
}

// Run is one run.
type Run struct {
	ID     string
	target Target
	opts   Options
	start  time.Time
	mu     sync.Mutex // of Out
}

// New returns a run with a new id, which has done nothing.
func New(t Target, o Options) *Run {
	return &Run{ID: newRunID(), target: t, opts: o, start: time.Now()}
}

// Do deploys, shows and removes everything, and returns the report of what was shown. The
// report is complete unless the error is not nil. What is removed is removed even if ctx
// has ended.
func (r *Run) Do(ctx context.Context) (report Report, err error) {
	report = r.newReport()
	if err := os.MkdirAll(r.opts.State, 0o700); err != nil {
		return report, err
	}
	defer func() {
		if !r.opts.Keep {
			report.Removal, err = r.remove(context.WithoutCancel(ctx), err)
		}
		report.finish()
	}()
	d, err := r.deploy(ctx, &report)
	if err != nil {
		return report, err
	}
	return report, r.show(ctx, d, &report)
}

// remove removes everything of the run, and adds what went wrong to the run's error.
func (r *Run) remove(ctx context.Context, err error) (Removal, error) {
	r.say("removing everything of the run")
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	after, failed := Cleanup(ctx, r.target, r.ID, r.say)
	if failed == nil && len(after.Left) > 0 {
		failed = fmt.Errorf("these resources are left: %s", strings.Join(after.Left, ", "))
	}
	if failed != nil {
		return after, errors.Join(err, fmt.Errorf("not everything is removed; run payhook acceptance --cleanup: %w",
			failed))
	}
	r.say("everything of the run is removed")
	return after, err
}

// removeTimeout is how long the removal of everything may take.
const removeTimeout = 45 * time.Minute

// show shows every section, and adds the results to the report.
func (r *Run) show(ctx context.Context, d *deployed, report *Report) error {
	for _, s := range d.sections() {
		var rows []Row
		err := r.step(s.title, func() (err error) {
			rows, err = s.show(ctx)
			return err
		})
		report.add(s.title, abouts[s.title], rows)
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *Run) say(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.opts.Out, "[%6.1fs] %s\n", time.Since(r.start).Seconds(), fmt.Sprintf(format, args...))
}

// step runs one step, and says when it starts and ends.
func (r *Run) step(name string, do func() error) error {
	r.say("%s ...", name)
	start := time.Now()
	if err := do(); err != nil {
		r.say("%s: failed after %.1fs", name, time.Since(start).Seconds())
		return fmt.Errorf("%s: %w", name, err)
	}
	r.say("%s: done in %.1fs", name, time.Since(start).Seconds())
	return nil
}

func (r *Run) log(name string) string { return filepath.Join(r.opts.State, name+".log") }
