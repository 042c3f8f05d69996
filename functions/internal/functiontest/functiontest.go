// Package functiontest has what the tests of the handlers share: the settings of a function, its stores in memory and
// its log.
package functiontest

import (
	"bytes"
	"context"
	"encoding/json/v2"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"payhook.example/shared/bus"
	"payhook.example/shared/intake"
	"payhook.example/shared/keys"
	"payhook.example/shared/lambdaruntime"
	"payhook.example/shared/ledger"
	"payhook.example/shared/objects"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

// SigningKey returns the service's key in all tests. Generating one takes longer than most tests.
var SigningKey = sync.OnceValue(func() paymenttest.Key { return paymenttest.NewKey(2048) })

// Function has what a test passes to a handler, and what it left there.
type Function struct {
	T    testing.TB
	Conf settings.Config

	Ledger                         Ledger
	Keys                           keys.Memory
	Bus                            bus.Memory
	LargeEvents, Parking, Evidence objects.Memory
	Log                            bytes.Buffer
}

// Ledger is a ledger in memory.
type Ledger struct {
	ledger.Memory
	Before func(context.Context) error // if set, it is called before each write, which has its error
}

// Write implements [ledger.Store].
func (l *Ledger) Write(ctx context.Context, writes []ledger.Write) []ledger.WriteResult {
	if l.Before != nil {
		if err := l.Before(ctx); err != nil {
			return slices.Repeat([]ledger.WriteResult{{Err: err}}, len(writes))
		}
	}
	return l.Memory.Write(ctx, writes)
}

// New returns the function of a stack without a token, with further settings and then further environment variables.
func New(t testing.TB, name string, given, env map[string]string) *Function {
	t.Helper()
	values := map[string]string{"baseUrl": "https://service.example", "tokenStore": settings.NoToken}
	maps.Copy(values, given)
	var stack settings.Settings
	stack.Add(values, "")
	stack, err := stack.Parse(settings.Stack{})
	if err != nil {
		t.Fatal(err)
	}
	all := stack.Environment(name, settings.Resources{settings.LedgerTableEnv: "ledger", settings.KeysTableEnv: "keys",
		settings.LargeEventBucketEnv: "large-events", settings.ParkingBucketEnv: "parking",
		settings.EventBusNameEnv: "payhook", settings.TokenSecretEnv: "token",
		settings.CredentialsSecretEnv: "credentials"})
	maps.Copy(all, env)
	f := &Function{T: t}
	if f.Conf, err = settings.ParseConfig(name, func(name string) string { return all[name] }); err != nil {
		t.Fatal(err)
	}
	return f
}

// Stores returns the stores of the function.
func (f *Function) Stores() intake.Stores {
	s := intake.Stores{Ledger: &f.Ledger, Keys: &f.Keys, Bus: &f.Bus, LargeEvents: &f.LargeEvents, Parking: &f.Parking}
	if f.Conf.EvidenceBucket != "" {
		s.Evidence = &f.Evidence
	}
	return s
}

// NewLog returns the log of the function.
func (f *Function) NewLog() *lambdaruntime.Log { return lambdaruntime.NewLog(&f.Log, "Payhook") }

// Line returns the last line of the log.
func (f *Function) Line() map[string]any {
	f.T.Helper()
	lines := bytes.Split(bytes.TrimSpace(f.Log.Bytes()), []byte("\n"))
	return f.Decode(lines[len(lines)-1])
}

// Decode returns a JSON object.
func (f *Function) Decode(text []byte) (object map[string]any) {
	f.T.Helper()
	if err := json.Unmarshal(text, &object); err != nil {
		f.T.Fatalf("%q: %v", text, err)
	}
	return object
}

// NothingHappened fails the test if anything was recorded, published, stored or parked.
func (f *Function) NothingHappened() {
	f.T.Helper()
	if n := len(f.Ledger.Items()) + len(f.Bus.Entries()) + len(f.LargeEvents.Keys()) + len(f.Parking.Keys()); n != 0 {
		f.T.Errorf("%d items, entries or objects were written", n)
	}
}

// InPackage returns the environment of a function that has a file in its package.
func InPackage(t testing.TB, file string, content []byte) map[string]string {
	t.Helper()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, file), content, 0o600); err != nil {
		t.Fatal(err)
	}
	return map[string]string{"LAMBDA_TASK_ROOT": folder}
}

// WithCertificates returns the environment of a function that requires client certificates of a CA.
func WithCertificates(t testing.TB, authentication string, ca *paymenttest.CA) map[string]string {
	t.Helper()
	env := InPackage(t, settings.TruststoreFile, ca.PEM())
	env["PAYHOOK_AUTHENTICATION"] = authentication
	return env
}

// RunEffects runs the tests of the effects of all settings that a function reads, by their keys.
func RunEffects(t *testing.T, function string, effects map[string]func(*testing.T)) {
	for _, s := range settings.ReadBy(function) {
		effect := effects[s.Key]
		if effect == nil {
			t.Errorf("no test covers the effect of %s", s.Key)
			continue
		}
		t.Run(s.Key, effect)
	}
}
