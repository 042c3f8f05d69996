package listen

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"golang.org/x/sync/errgroup"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/cmd/payhook/logs"
)

// session is one run of the command.
type session struct {
	follower *logs.Follower // of the webhook function
	display  display
	made     *temporary
	matcher  *matcher
	forward  *forwarder // nil: events are not forwarded
	now      func() time.Time
	wait     func(context.Context, time.Duration) error
	say      func(format string, args ...any)
	long     int32 // seconds that a request waits for events

	ids   map[string]bool // of the events that were received
	order []string        // of ids
}

// run shows what arrives until ctx ends, which is no error. It removes what it made.
func (s *session) run(ctx context.Context) error {
	l, err := s.made.create(ctx)
	if err != nil {
		return err
	}
	// The queue may be replaced meanwhile.
	defer func() {
		if err := s.made.removeAnyway(ctx, l); err != nil {
			s.say("the rule and the queue %s are left behind (%v): the next start of payhook listen removes them",
				l.name, err)
			return
		}
		s.say("removed the rule and the queue %s", l.name)
	}()
	s.display.begins(l.made)
	s.say("ready: the rule and the queue %s show events; a new rule takes effect after a short time", l.name)

	show := make(chan func() error)
	in := func(ctx context.Context, do func() error) error {
		select {
		case show <- do:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
	group, running := errgroup.WithContext(ctx)
	group.Go(func() error {
		return s.follower.Follow(running, func(entries []logs.Entry) error {
			for _, e := range entries {
				if w, ok := readWebhook(e); ok {
					if err := in(running, func() error { return s.display.addWebhook(w, s.now()) }); err != nil {
						return err
					}
				}
			}
			return nil
		})
	})
	group.Go(func() error {
		return s.receive(running, &l, func(a Event) error {
			return in(running, func() error { return s.display.addEvent(a, s.now()) })
		})
	})
	group.Go(func() error {
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		for {
			var err error
			select {
			case do := <-show:
				err = do()
			case <-tick.C:
				err = s.display.showDue(s.now())
			case <-running.Done():
				return s.display.showAll()
			}
			if err != nil {
				return err
			}
		}
	})
	return group.Wait()
}

const (
	// newQueue is how long a queue may be unknown after it was created.
	newQueue = 10 * time.Second
	// checkRule is how often it is checked that the rule is still there.
	checkRule = time.Minute
	// maxIDs is how many events are remembered, because EventBridge and SQS may deliver an
	// event more than once.
	maxIDs = 100_000
)

// receive takes events out of the queue. It replaces rule and queue if they are gone.
func (s *session) receive(ctx context.Context, l **listener, show func(Event) error) error {
	now := func() time.Time { return s.now().Round(0) }
	last, said := now(), time.Time{}
	for ctx.Err() == nil {
		begun := now()
		messages, err := s.poll(ctx, *l)
		if err == nil {
			if gap := begun.Sub(last); gap > retention {
				s.say("events were not received for %s, and the queue keeps them for %s: some are missing here; "+
					"the webhooks are complete", cli.Readable(gap), cli.Readable(retention))
			}
			last, said = now(), time.Time{}
			if err = s.take(ctx, *l, messages, show); err == nil {
				err = s.check(ctx, *l)
			}
		}
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return nil
		case isGone(err) && now().Sub((*l).made) < newQueue: // not known everywhere yet
			_ = s.wait(ctx, time.Second)
		case isGone(err) || errors.Is(err, errNoRule):
			s.say("somebody removed the rule or the queue %s; events since %s may be missing here", (*l).name,
				cli.Stamp(last))
			if err := s.replace(ctx, l); err != nil {
				return err
			}
		case cannotShow(err) || logs.Rejected(err):
			return err
		default:
			if begun.Sub(said) >= time.Minute {
				s.say("%v; trying again", err)
				said = begun
			}
			_ = s.wait(ctx, 2*time.Second)
		}
	}
	return nil
}

// cannotShow reports whether an event could not be shown.
func cannotShow(err error) bool {
	_, ok := errors.AsType[*showError](err)
	return ok
}

// showError is an error of showing an event.
type showError struct{ error }

var errNoRule = errors.New("the rule is gone")

// replace makes another rule and queue, and removes what is left of those before.
func (s *session) replace(ctx context.Context, l **listener) error {
	if err := s.made.remove(ctx, *l); err != nil {
		return err
	}
	fresh, err := s.made.create(ctx)
	if err != nil {
		return err
	}
	*l = fresh
	s.matcher.read = time.Time{}
	s.say("the rule and the queue %s take their place", fresh.name)
	return nil
}

// check returns errNoRule if the rule is gone. It asks once a minute.
func (s *session) check(ctx context.Context, l *listener) error {
	if err := s.matcher.refresh(ctx, checkRule); err != nil {
		return err
	}
	if !s.matcher.has(l.name) && s.matcher.read.After(l.made.Add(newQueue)) {
		return errNoRule
	}
	return nil
}

// poll waits for events.
func (s *session) poll(ctx context.Context, l *listener) ([]types.Message, error) {
	out, err := s.made.queues.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: &l.url,
		MaxNumberOfMessages: 10, WaitTimeSeconds: s.long})
	if err != nil {
		return nil, fmt.Errorf("the temporary queue: %w", err)
	}
	return out.Messages, nil
}

// take forwards and shows events, and then takes them out of the queue.
func (s *session) take(ctx context.Context, l *listener, messages []types.Message, show func(Event) error) error {
	var done []types.DeleteMessageBatchRequestEntry
	for i, m := range messages {
		a, id, err := readEvent(aws.ToString(m.Body), s.now())
		if err != nil {
			s.say("%v", err)
		} else if s.isNew(id) {
			if a.Rules, err = s.matcher.match(ctx, aws.ToString(m.Body)); err != nil {
				a.Unknown = err.Error()
			}
			if s.forward != nil {
				f := s.forward.post(ctx, a.Event)
				a.Forward = &f
			}
			if err := show(a); err != nil {
				return &showError{err}
			}
		}
		if ctx.Err() != nil {
			return nil
		}
		done = append(done, types.DeleteMessageBatchRequestEntry{Id: aws.String(fmt.Sprint(i)),
			ReceiptHandle: m.ReceiptHandle})
	}
	if len(done) == 0 {
		return nil
	}
	// What is not deleted comes again and is not new.
	_, err := s.made.queues.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: &l.url, Entries: done})
	return err
}

// isNew reports whether an event is received for the first time.
func (s *session) isNew(id string) bool {
	if s.ids[id] {
		return false
	}
	if len(s.order) == maxIDs {
		delete(s.ids, s.order[0])
		s.order = s.order[1:]
	}
	s.ids[id] = true
	s.order = append(s.order, id)
	return true
}
