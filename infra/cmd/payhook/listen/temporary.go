package listen

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	eventbridgetypes "github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
	smithytime "github.com/aws/smithy-go/time"

	"payhook.example/infra/cmd/payhook/logs"
)

// Prefix begins the names of all temporary rules and queues. The policy of whoever
// listens is limited to it.
const Prefix = "payhook-listen-"

// description begins the description of a temporary rule. The time from which on anybody's
// start removes the rule follows.
const description = "Shows events to payhook listen, which removes this rule when it ends, or after "

const (
	// lifetime is how long a rule that its program did not remove is left alone.
	lifetime = 7 * 24 * time.Hour
	// retention is how long the queue keeps an event while the computer sleeps.
	retention = 24 * time.Hour
	// visibility is how long a received event has to be forwarded.
	visibility = 5 * time.Minute
	// newQueue is how long a queue may be unknown after it was created.
	newQueue = 10 * time.Second
)

// temporary is a rule of a bus with a queue of the same name behind it.
type temporary struct {
	events    *eventbridge.Client
	queues    *sqs.Client
	bus       string
	name, url string
}

func newTemporary(config aws.Config, bus string) *temporary {
	return &temporary{events: eventbridge.NewFromConfig(config), queues: sqs.NewFromConfig(config), bus: bus,
		name: Prefix + strings.ReplaceAll(uuid.New().String(), "-", "")[:12]}
}

// Subscribe makes a temporary rule with an event pattern and a queue behind it, and returns the
// URL of the queue. The first listener after their lifetime removes them.
func Subscribe(ctx context.Context, config aws.Config, bus, pattern string) (queueURL string, err error) {
	t := newTemporary(config, bus)
	err = t.create(ctx, pattern)
	return t.url, err
}

// create makes the rule and the queue, or neither. The rule is made first and removed last,
// so whoever finds the rule finds everything.
func (t *temporary) create(ctx context.Context, pattern string) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, t.removeAnyway(ctx))
		}
	}()
	rule, err := t.events.PutRule(ctx, &eventbridge.PutRuleInput{Name: &t.name, EventBusName: &t.bus,
		Description:  aws.String(description + time.Now().Add(lifetime).UTC().Format(time.RFC3339)),
		EventPattern: &pattern, State: eventbridgetypes.RuleStateEnabled})
	if err != nil {
		return fmt.Errorf("the temporary rule: %w", err)
	}
	// arn:aws:events:REGION:ACCOUNT:rule/BUS/NAME
	part := strings.SplitN(aws.ToString(rule.RuleArn), ":", 6)
	if len(part) != 6 {
		return fmt.Errorf("the temporary rule has the ARN %q", aws.ToString(rule.RuleArn))
	}
	queue := strings.Join([]string{part[0], part[1], "sqs", part[3], part[4], t.name}, ":")
	if err := t.createQueue(ctx, *rule.RuleArn, queue); err != nil {
		return fmt.Errorf("the temporary queue: %w", err)
	}
	out, err := t.events.PutTargets(ctx, &eventbridge.PutTargetsInput{Rule: &t.name, EventBusName: &t.bus,
		Targets: []eventbridgetypes.Target{{Id: aws.String(targetID), Arn: &queue}}})
	if err == nil && len(out.FailedEntries) > 0 {
		err = errors.New(aws.ToString(out.FailedEntries[0].ErrorMessage))
	}
	if err != nil {
		return fmt.Errorf("the target of the temporary rule: %w", err)
	}
	return nil
}

const targetID = "queue"

// createQueue creates the queue. With a policy, EventBridge needs no role:
// https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-use-resource-based.html
// Encryption with keys of SQS needs no permission of the sender.
func (t *temporary) createQueue(ctx context.Context, rule, queue string) error {
	policy, err := json.Marshal(map[string]any{"Version": "2012-10-17", "Statement": []map[string]any{
		{"Effect": "Allow", "Principal": map[string]string{"Service": "events.amazonaws.com"},
			"Action": "sqs:SendMessage", "Resource": queue,
			"Condition": map[string]any{"ArnEquals": map[string]string{"aws:SourceArn": rule}}},
		// A principal of the account may have permission to send to any queue.
		{"Effect": "Deny", "Principal": "*", "Action": "sqs:SendMessage", "Resource": queue,
			"Condition": map[string]any{"ArnNotEquals": map[string]string{"aws:SourceArn": rule}}},
	}})
	if err != nil {
		return err
	}
	out, err := t.queues.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &t.name, Attributes: map[string]string{
		"Policy":                 string(policy),
		"SqsManagedSseEnabled":   "true",
		"MessageRetentionPeriod": fmt.Sprint(retention.Seconds()),
		"VisibilityTimeout":      fmt.Sprint(visibility.Seconds()),
	}})
	if err != nil {
		return err
	}
	t.url = aws.ToString(out.QueueUrl)
	return nil
}

// receive calls show with each message of the queue, and then deletes it, until ctx ends,
// which is no error. If AWS cannot be reached, it tells say and tries again.
func (t *temporary) receive(ctx context.Context, say func(string), show func(body string) error) error {
	begun, failing := time.Now(), false
	for ctx.Err() == nil {
		out, err := t.queues.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: &t.url,
			MaxNumberOfMessages: 10, WaitTimeSeconds: 20})
		if err == nil {
			for _, m := range out.Messages {
				if err := show(aws.ToString(m.Body)); err != nil {
					return err
				}
				// One that is not deleted comes again.
				_, deleted := t.queues.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: &t.url,
					ReceiptHandle: m.ReceiptHandle})
				err = errors.Join(err, deleted)
			}
		}
		gone := isGone(err)
		switch {
		case err == nil || ctx.Err() != nil:
			failing = false
			continue
		case gone && time.Since(begun) > newQueue:
			return fmt.Errorf("somebody removed the rule and the queue %s: start payhook listen again", t.name)
		case !gone && logs.Rejected(err):
			return fmt.Errorf("the temporary queue: %w", err)
		case !gone && !failing:
			say(err.Error() + "; trying again")
			failing = true
		}
		_ = smithytime.SleepWithContext(ctx, 2*time.Second)
	}
	return nil
}

// remove removes the rule and its queue, as far as they exist.
func (t *temporary) remove(ctx context.Context) error {
	_, err := t.events.RemoveTargets(ctx,
		&eventbridge.RemoveTargetsInput{Rule: &t.name, EventBusName: &t.bus, Ids: []string{targetID}})
	if _, gone := errors.AsType[*eventbridgetypes.ResourceNotFoundException](err); err != nil && !gone {
		return err
	}
	if err := t.removeQueue(ctx); err != nil && !isGone(err) {
		return err
	}
	_, err = t.events.DeleteRule(ctx, &eventbridge.DeleteRuleInput{Name: &t.name, EventBusName: &t.bus})
	return err
}

func (t *temporary) removeQueue(ctx context.Context) error {
	found, err := t.queues.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &t.name})
	if err != nil {
		return err
	}
	_, err = t.queues.DeleteQueue(ctx, &sqs.DeleteQueueInput{QueueUrl: found.QueueUrl})
	return err
}

// removeAnyway removes the rule and its queue, also if ctx has ended.
func (t *temporary) removeAnyway(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
	defer cancel()
	return t.remove(ctx)
}

// isGone reports whether an error says that a queue does not exist.
func isGone(err error) bool {
	_, gone := errors.AsType[*sqstypes.QueueDoesNotExist](err)
	return gone
}

// removeExpired removes the rules and queues that earlier runs did not remove.
func (t *temporary) removeExpired(ctx context.Context, say func(string)) error {
	input := &eventbridge.ListRulesInput{EventBusName: &t.bus, NamePrefix: aws.String(Prefix)}
	for {
		page, err := t.events.ListRules(ctx, input)
		if err != nil {
			return fmt.Errorf("the rules of the bus: %w", err)
		}
		for _, rule := range page.Rules {
			text, own := strings.CutPrefix(aws.ToString(rule.Description), description)
			expires, err := time.Parse(time.RFC3339, text)
			if !own || err != nil || time.Now().Before(expires) {
				continue
			}
			left := &temporary{events: t.events, queues: t.queues, bus: t.bus, name: aws.ToString(rule.Name)}
			if err := left.remove(ctx); err != nil {
				return fmt.Errorf("the rule and the queue %s of an earlier run: %w", left.name, err)
			}
			say("removed the rule and the queue " + left.name + " of an earlier run")
		}
		if input.NextToken = page.NextToken; aws.ToString(page.NextToken) == "" {
			return nil
		}
	}
}
