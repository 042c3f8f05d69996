package listen

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	eventbridgetypes "github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	"golang.org/x/time/rate"

	"payhook.example/infra/cmd/payhook/cli"
)

// everything matches every event of the bus.
const everything = `{"source":[{"prefix":""}]}`

// anEvent is an event with which a pattern is tried before it is used.
const anEvent = `{"version":"0","id":"00000000-0000-0000-0000-000000000000","account":"000000000000",` +
	`"time":"2026-01-31T12:00:00Z","region":"us-east-1","source":"payhook","detail-type":"test","resources":[],` +
	`"detail":{}}`

// checkPattern asks EventBridge whether a pattern is valid.
func checkPattern(ctx context.Context, api eventsAPI, file, pattern string) error {
	_, err := testPattern(ctx, api, pattern, anEvent)
	if invalid, ok := errors.AsType[*eventbridgetypes.InvalidEventPatternException](err); ok {
		return cli.Usage("%s is no event pattern: %s", file, invalid.ErrorMessage())
	}
	return err
}

// testPattern asks EventBridge whether an event matches a pattern:
// https://docs.aws.amazon.com/eventbridge/latest/APIReference/API_TestEventPattern.html
func testPattern(ctx context.Context, api eventsAPI, pattern, event string) (bool, error) {
	out, err := api.TestEventPattern(ctx, &eventbridge.TestEventPatternInput{EventPattern: &pattern, Event: &event})
	if err != nil {
		return false, err
	}
	return out.Result, nil
}

const (
	// rulesAge is how old the list of rules may be when an event is compared with it.
	rulesAge = 10 * time.Second
	// Each event is compared with each pattern by a request. These limits leave room for
	// others who call EventBridge in the account.
	testsPerSecond, testsAtOnce = 20, 100
)

// matcher says which rules of the bus an event matches.
type matcher struct {
	api     eventsAPI
	bus     string
	now     func() time.Time
	limiter *rate.Limiter

	rules []eventbridgetypes.Rule // all, this program's as well
	read  time.Time               // when they were read
}

func newMatcher(api eventsAPI, bus string, now func() time.Time) *matcher {
	return &matcher{api: api, bus: bus, now: now, limiter: rate.NewLimiter(testsPerSecond, testsAtOnce)}
}

// refresh reads the rules if those that are known are older than age.
func (m *matcher) refresh(ctx context.Context, age time.Duration) error {
	now := m.now().Round(0)
	if !m.read.IsZero() && now.Sub(m.read) < age {
		return nil
	}
	rules, err := ListRules(ctx, m.api, m.bus, "")
	if err != nil {
		return err
	}
	m.rules, m.read = rules, now
	return nil
}

// has reports whether the bus had a rule when the rules were read.
func (m *matcher) has(name string) bool {
	return slices.ContainsFunc(m.rules, func(r eventbridgetypes.Rule) bool { return aws.ToString(r.Name) == name })
}

// match returns the names of the rules whose patterns an event matches: those that are
// enabled and that neither this program nor a service of AWS made. It returns an error if
// it does not know.
func (m *matcher) match(ctx context.Context, event string) ([]string, error) {
	if err := m.refresh(ctx, rulesAge); err != nil {
		return nil, err
	}
	byPattern := map[string][]string{}
	for _, r := range m.rules {
		name, pattern := aws.ToString(r.Name), aws.ToString(r.EventPattern)
		if pattern != "" && r.State == eventbridgetypes.RuleStateEnabled && r.ManagedBy == nil &&
			!strings.HasPrefix(name, Prefix) {
			byPattern[pattern] = append(byPattern[pattern], name)
		}
	}
	if len(byPattern) > testsAtOnce {
		return nil, fmt.Errorf("the bus has more than %d patterns", testsAtOnce)
	}
	if !m.limiter.AllowN(m.now(), len(byPattern)) {
		return nil, errTooFast
	}
	names := []string{}
	for pattern, of := range byPattern {
		matches, err := testPattern(ctx, m.api, pattern, event)
		if err != nil {
			return nil, err
		}
		if matches {
			names = append(names, of...)
		}
	}
	slices.Sort(names)
	return names, nil
}

var errTooFast = fmt.Errorf("more than %d comparisons a second", testsPerSecond)
