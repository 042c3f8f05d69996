package listen

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	eventbridgetypes "github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// Prefix begins the names of all temporary rules and queues. The policy of whoever
// listens is limited to it.
const Prefix = "payhook-listen-"

// The tags of a temporary rule and of its queue.
const (
	programTag = "program"
	ownerTag   = "owner"
	expiresTag = "expires"
	program    = "payhook listen"
)

const (
	// lifetime is how long a rule that its program did not remove, on a computer that
	// does not listen any more, is left alone.
	lifetime = 7 * 24 * time.Hour
	// retention is how long the queue keeps an event while the computer sleeps.
	retention = 24 * time.Hour
	// visibility is how long a received event has to be forwarded.
	visibility = 5 * time.Minute
)

// eventsAPI is what of EventBridge is used.
type eventsAPI interface {
	RulesAPI
	ListTagsForResource(context.Context, *eventbridge.ListTagsForResourceInput,
		...func(*eventbridge.Options)) (*eventbridge.ListTagsForResourceOutput, error)
	PutRule(context.Context, *eventbridge.PutRuleInput,
		...func(*eventbridge.Options)) (*eventbridge.PutRuleOutput, error)
	PutTargets(context.Context, *eventbridge.PutTargetsInput,
		...func(*eventbridge.Options)) (*eventbridge.PutTargetsOutput, error)
	RemoveTargets(context.Context, *eventbridge.RemoveTargetsInput,
		...func(*eventbridge.Options)) (*eventbridge.RemoveTargetsOutput, error)
	DeleteRule(context.Context, *eventbridge.DeleteRuleInput,
		...func(*eventbridge.Options)) (*eventbridge.DeleteRuleOutput, error)
	TestEventPattern(context.Context, *eventbridge.TestEventPatternInput,
		...func(*eventbridge.Options)) (*eventbridge.TestEventPatternOutput, error)
}

// queueAPI is what of SQS is used.
type queueAPI interface {
	CreateQueue(context.Context, *sqs.CreateQueueInput, ...func(*sqs.Options)) (*sqs.CreateQueueOutput, error)
	GetQueueUrl(context.Context, *sqs.GetQueueUrlInput, ...func(*sqs.Options)) (*sqs.GetQueueUrlOutput, error)
	ReceiveMessage(context.Context, *sqs.ReceiveMessageInput,
		...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error)
	DeleteMessageBatch(context.Context, *sqs.DeleteMessageBatchInput,
		...func(*sqs.Options)) (*sqs.DeleteMessageBatchOutput, error)
	DeleteQueue(context.Context, *sqs.DeleteQueueInput, ...func(*sqs.Options)) (*sqs.DeleteQueueOutput, error)
}

// temporary makes rules of a bus with a queue of the same name behind each.
type temporary struct {
	events  eventsAPI
	queues  queueAPI
	bus     string
	pattern string
	owner   string
	now     func() time.Time
	locks   string // the folder with a locked file for each rule; "" for none
}

// listener is one temporary rule with its queue.
type listener struct {
	name, url string
	made      time.Time
	lock      *os.File // nil without a folder for it
}

// create makes a rule and a queue, or neither. The rule is made first and removed last,
// so whoever finds the rule finds everything.
func (t *temporary) create(ctx context.Context) (_ *listener, err error) {
	l := &listener{name: Prefix + strings.ReplaceAll(uuid.New().String(), "-", "")[:12], made: t.now()}
	if l.lock, err = t.takeLock(l.name); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.removeAnyway(ctx, l))
		}
	}()
	rule, err := t.putRule(ctx, l)
	if err != nil {
		return nil, fmt.Errorf("the temporary rule: %w", err)
	}
	// arn:aws:events:REGION:ACCOUNT:rule/BUS/NAME
	part := strings.SplitN(rule, ":", 6)
	if len(part) != 6 {
		return nil, fmt.Errorf("the temporary rule has the ARN %q", rule)
	}
	queue := strings.Join([]string{part[0], part[1], "sqs", part[3], part[4], l.name}, ":")
	if l.url, err = t.createQueue(ctx, l, rule, queue); err != nil {
		return nil, fmt.Errorf("the temporary queue: %w", err)
	}
	if err := t.putTarget(ctx, l, queue); err != nil {
		return nil, fmt.Errorf("the target of the temporary rule: %w", err)
	}
	return l, nil
}

func (t *temporary) tags(l *listener) map[string]string {
	return map[string]string{programTag: program, ownerTag: t.owner,
		expiresTag: l.made.Add(lifetime).UTC().Format(time.RFC3339)}
}

// putRule creates the rule. To set tags, PutRule needs the permission of TagResource, too:
// https://docs.aws.amazon.com/eventbridge/latest/APIReference/API_PutRule.html
func (t *temporary) putRule(ctx context.Context, l *listener) (arn string, err error) {
	var tags []eventbridgetypes.Tag
	for key, value := range t.tags(l) {
		tags = append(tags, eventbridgetypes.Tag{Key: &key, Value: &value})
	}
	out, err := t.events.PutRule(ctx, &eventbridge.PutRuleInput{Name: &l.name, EventBusName: &t.bus,
		Description:  aws.String("Shows events to payhook listen, which removes this rule when it ends"),
		EventPattern: &t.pattern, State: eventbridgetypes.RuleStateEnabled, Tags: tags})
	if err != nil {
		return "", err
	}
	return aws.ToString(out.RuleArn), nil
}

// createQueue creates the queue. With a policy, EventBridge needs no role:
// https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-use-resource-based.html
// Encryption with keys of SQS needs no permission of the sender. To set tags, CreateQueue
// needs the permission of TagQueue, too:
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_CreateQueue.html
func (t *temporary) createQueue(ctx context.Context, l *listener, rule, queue string) (url string, err error) {
	policy, err := json.Marshal(map[string]any{"Version": "2012-10-17", "Statement": []map[string]any{
		{"Effect": "Allow", "Principal": map[string]string{"Service": "events.amazonaws.com"},
			"Action": "sqs:SendMessage", "Resource": queue,
			"Condition": map[string]any{"ArnEquals": map[string]string{"aws:SourceArn": rule}}},
		// A principal of the account may have permission to send to any queue.
		{"Effect": "Deny", "Principal": "*", "Action": "sqs:SendMessage", "Resource": queue,
			"Condition": map[string]any{"ArnNotEquals": map[string]string{"aws:SourceArn": rule}}},
	}})
	if err != nil {
		return "", err
	}
	out, err := t.queues.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &l.name, Tags: t.tags(l),
		Attributes: map[string]string{
			"Policy":                 string(policy),
			"SqsManagedSseEnabled":   "true",
			"MessageRetentionPeriod": fmt.Sprint(retention.Seconds()),
			"VisibilityTimeout":      fmt.Sprint(visibility.Seconds()),
		}})
	if err != nil {
		return "", err
	}
	return aws.ToString(out.QueueUrl), nil
}

const targetID = "queue"

func (t *temporary) putTarget(ctx context.Context, l *listener, queue string) error {
	out, err := t.events.PutTargets(ctx, &eventbridge.PutTargetsInput{Rule: &l.name, EventBusName: &t.bus,
		Targets: []eventbridgetypes.Target{{Id: aws.String(targetID), Arn: &queue}}})
	if err != nil {
		return err
	}
	for _, failed := range out.FailedEntries {
		return fmt.Errorf("%s: %s", aws.ToString(failed.ErrorCode), aws.ToString(failed.ErrorMessage))
	}
	return nil
}

// remove removes a rule and its queue, as far as they are there.
func (t *temporary) remove(ctx context.Context, l *listener) error {
	if err := t.removeTarget(ctx, l.name); err != nil {
		return err
	}
	if err := t.removeQueue(ctx, l.name); err != nil {
		return err
	}
	if _, err := t.events.DeleteRule(ctx,
		&eventbridge.DeleteRuleInput{Name: &l.name, EventBusName: &t.bus}); err != nil {
		return err
	}
	if l.lock != nil {
		os.Remove(l.lock.Name())
		l.lock.Close()
	}
	return nil
}

// removeAnyway removes a rule and its queue, also if ctx has ended.
func (t *temporary) removeAnyway(ctx context.Context, l *listener) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
	defer cancel()
	return t.remove(ctx, l)
}

func (t *temporary) removeTarget(ctx context.Context, name string) error {
	_, err := t.events.RemoveTargets(ctx,
		&eventbridge.RemoveTargetsInput{Rule: &name, EventBusName: &t.bus, Ids: []string{targetID}})
	if _, gone := errors.AsType[*eventbridgetypes.ResourceNotFoundException](err); gone {
		return nil
	}
	return err
}

func (t *temporary) removeQueue(ctx context.Context, name string) error {
	found, err := t.queues.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &name})
	if err == nil {
		_, err = t.queues.DeleteQueue(ctx, &sqs.DeleteQueueInput{QueueUrl: found.QueueUrl})
	}
	if isGone(err) {
		return nil
	}
	return err
}

// isGone reports whether an error says that a queue does not exist.
func isGone(err error) bool {
	_, gone := errors.AsType[*sqstypes.QueueDoesNotExist](err)
	return gone
}

// removeLeftovers removes what earlier programs left behind: those of this computer that
// do not run any more, and those that have expired. It tells say whose they were.
func (t *temporary) removeLeftovers(ctx context.Context, say func(format string, args ...any)) error {
	rules, err := ListRules(ctx, t.events, t.bus, Prefix)
	if err != nil {
		return err
	}
	for _, rule := range rules {
		name := aws.ToString(rule.Name)
		tags, err := t.readTags(ctx, rule)
		if err != nil {
			return err
		}
		lock, dead := t.takeLeftLock(name)
		expires, err := time.Parse(time.RFC3339, tags[expiresTag])
		if expired := err == nil && t.now().After(expires); tags[programTag] != program || !dead && !expired {
			if dead {
				lock.Close()
			}
			continue
		}
		if err := t.remove(ctx, &listener{name: name, lock: lock}); err != nil {
			return err
		}
		say("removed the rule and the queue %s, which %s left behind", name, tags[ownerTag])
	}
	return nil
}

func (t *temporary) readTags(ctx context.Context, rule eventbridgetypes.Rule) (map[string]string, error) {
	out, err := t.events.ListTagsForResource(ctx, &eventbridge.ListTagsForResourceInput{ResourceARN: rule.Arn})
	if _, gone := errors.AsType[*eventbridgetypes.ResourceNotFoundException](err); gone {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	tags := map[string]string{}
	for _, tag := range out.Tags {
		tags[aws.ToString(tag.Key)] = aws.ToString(tag.Value)
	}
	return tags, nil
}

// RulesAPI is what of EventBridge [ListRules] needs.
type RulesAPI interface {
	ListRules(context.Context, *eventbridge.ListRulesInput,
		...func(*eventbridge.Options)) (*eventbridge.ListRulesOutput, error)
}

// ListRules returns the rules of a bus whose names begin with a prefix.
func ListRules(ctx context.Context, api RulesAPI, bus, prefix string) ([]eventbridgetypes.Rule, error) {
	input := &eventbridge.ListRulesInput{EventBusName: &bus}
	if prefix != "" {
		input.NamePrefix = &prefix
	}
	var rules []eventbridgetypes.Rule
	for {
		page, err := api.ListRules(ctx, input)
		if err != nil {
			return nil, fmt.Errorf("the rules of the bus: %w", err)
		}
		rules = append(rules, page.Rules...)
		if aws.ToString(page.NextToken) == "" {
			return rules, nil
		}
		input.NextToken = page.NextToken
	}
}

// lockFolder is where a computer keeps a file for each rule that it has made. A running
// program holds a lock on its file, which ends with the program, however it ends.
func lockFolder() string {
	cache, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	folder := filepath.Join(cache, "payhook", "listen")
	if os.MkdirAll(folder, 0o700) != nil {
		return ""
	}
	return folder
}

func (t *temporary) takeLock(name string) (*os.File, error) {
	if t.locks == "" {
		return nil, nil
	}
	file, err := os.OpenFile(filepath.Join(t.locks, name), os.O_CREATE|os.O_RDWR|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// takeLeftLock reports whether this computer made the rule, and the program that made it
// does not run any more. It then returns the file, locked.
func (t *temporary) takeLeftLock(name string) (_ *os.File, dead bool) {
	if t.locks == "" || strings.ContainsRune(name, filepath.Separator) {
		return nil, false
	}
	file, err := os.OpenFile(filepath.Join(t.locks, name), os.O_RDWR, 0)
	if err != nil {
		return nil, false
	}
	if syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		file.Close()
		return nil, false
	}
	return file, true
}

// notInTags matches what the value of a tag cannot have:
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-queue-tags.html
var notInTags = regexp.MustCompile(`[^\p{L}\p{N} _.:/=+@-]`)

// tagValue returns a text as the value of a tag.
func tagValue(text string) string {
	return string([]rune(notInTags.ReplaceAllString(text, "_"))[:min(256, len([]rune(text)))])
}
