package console

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"

	"payhook.example/infra/cmd/payhook/listen"
	"payhook.example/infra/deployment"
)

// denied is the policy that denies to publish, and deny is its name.
const (
	deny   = "payhook-console-stops-the-bus"
	denied = `{"Version":"2012-10-17","Statement":[{"Effect":"Deny","Action":"events:PutEvents","Resource":"*"}]}`
)

// setBus stops or starts the event bus for the functions of the local run: a policy of the
// roles of the stack denies to publish. The emulator enforces it at once. To do so twice is no
// error.
func setBus(ctx context.Context, d *deployment.Deployment, stopped bool) error {
	pages := cloudformation.NewListStackResourcesPaginator(cloudformation.NewFromConfig(d.AWS),
		&cloudformation.ListStackResourcesInput{StackName: &d.Stack})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return err
		}
		for _, r := range page.StackResourceSummaries {
			if aws.ToString(r.ResourceType) != "AWS::IAM::Role" {
				continue
			}
			if err := setRole(ctx, d, aws.ToString(r.PhysicalResourceId), stopped); err != nil {
				return err
			}
		}
	}
	return nil
}

// setRole adds the policy to a role, or removes it. The client of the SDK for IAM would take a
// tenth of the time to compile this program.
func setRole(ctx context.Context, d *deployment.Deployment, role string, stopped bool) error {
	form := url.Values{"Version": {"2010-05-08"}, "Action": {"DeleteRolePolicy"}, "RoleName": {role},
		"PolicyName": {deny}}
	if stopped {
		form.Set("Action", "PutRolePolicy")
		form.Set("PolicyDocument", denied)
	}
	body := form.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, d.Endpoint, strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	credentials, err := d.AWS.Credentials.Retrieve(ctx)
	if err != nil {
		return err
	}
	digest := sha256.Sum256([]byte(body))
	if err := v4.NewSigner().SignHTTP(ctx, credentials, r, hex.EncodeToString(digest[:]), "iam", d.Region,
		time.Now()); err != nil {
		return err
	}
	answer, err := d.AWS.HTTPClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	// There is no policy to remove if it was not stopped.
	if err == nil && answer.StatusCode != http.StatusOK && (stopped || answer.StatusCode != http.StatusNotFound) {
		err = fmt.Errorf("iam:%s: %s", form.Get("Action"), text)
	}
	return err
}

// rulesFor returns the short names of the bus's rules that match an event in EventBridge's
// envelope. The temporary rules of listeners match every event, and are left out.
func rulesFor(ctx context.Context, d *deployment.Deployment, event string) (names []string, err error) {
	client := eventbridge.NewFromConfig(d.AWS)
	for input := (&eventbridge.ListRulesInput{EventBusName: &d.Bus}); ; {
		page, err := client.ListRules(ctx, input)
		if err != nil {
			return nil, err
		}
		for _, rule := range page.Rules {
			if strings.HasPrefix(aws.ToString(rule.Name), listen.Prefix) || rule.EventPattern == nil {
				continue
			}
			test, err := client.TestEventPattern(ctx,
				&eventbridge.TestEventPatternInput{Event: &event, EventPattern: rule.EventPattern})
			if err != nil {
				return nil, err
			}
			if test.Result {
				names = append(names, short(*rule.Name))
			}
		}
		if input.NextToken = page.NextToken; page.NextToken == nil {
			return names, nil
		}
	}
}

// generated matches a name that CloudFormation made of the stack, a logical id of the CDK and
// random characters.
var generated = regexp.MustCompile(`^.+-([0-9A-Za-z]+?)(?:Rule)?[0-9A-F]{8}-[0-9A-Za-z]+$`)

// short returns the part of a rule's name that the author of the rule chose.
func short(name string) string { return generated.ReplaceAllString(name, "$1") }
