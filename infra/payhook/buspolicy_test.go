package payhook

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// busStatement returns the one statement of the bus's policy, its conditions
// rendered.
func (tm *template) busStatement(t *testing.T) any {
	t.Helper()
	policy := tm.get(t, "BusPolicy", "AWS::Events::EventBusPolicy").Properties
	if got := tm.render(policy["EventBusName"]); got != "Bus" {
		t.Errorf("the policy is that of %s", got)
	}
	if policy["StatementId"] != at(policy, "Statement", "Sid") {
		t.Errorf("StatementId %v, Sid %v", policy["StatementId"], at(policy, "Statement", "Sid"))
	}
	return policy["Statement"]
}

func TestBusDeniesAllButThePublishers(t *testing.T) {
	tm := payhook(t, nil)
	s := tm.busStatement(t)
	if at(s, "Effect") != "Deny" || at(s, "Action") != "events:PutEvents" || at(s, "Principal") != "*" ||
		tm.render(at(s, "Resource")) != "Bus.Arn" {
		t.Errorf("got %v", s)
	}
	var publishers []string
	for _, role := range list(at(s, "Condition", "ArnNotEquals", "aws:PrincipalArn")) {
		publishers = append(publishers, tm.render(role))
	}
	slices.Sort(publishers)
	if diff := cmp.Diff([]string{"Redrive/Role.Arn", "Webhook/Role.Arn"}, publishers); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}

	// The roles with permission to publish must be exactly these.
	var allowed []string
	for name := range tm.all(t, "AWS::IAM::Role") {
		if slices.Contains(tm.grants(t, name)["Bus.Arn"], "events:PutEvents") {
			allowed = append(allowed, name+".Arn")
		}
	}
	slices.Sort(allowed)
	if diff := cmp.Diff(allowed, publishers); diff != "" {
		t.Errorf("roles with PutEvents, and those that the bus does not deny (-want +got)\n%s", diff)
	}
}

// A statement applies only if all its conditions are met. A further condition would
// exempt other principals.
func TestBusPolicyExemptsOnlyAWSServices(t *testing.T) {
	want := map[string]any{
		"ArnNotEquals": map[string]any{"aws:PrincipalArn": at(payhook(t, nil).busStatement(t), "Condition",
			"ArnNotEquals", "aws:PrincipalArn")},
		"BoolIfExists": map[string]any{"aws:PrincipalIsAWSService": "false"},
	}
	if diff := cmp.Diff(want, at(payhook(t, nil).busStatement(t), "Condition")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestBusPolicyCanBeDisabled(t *testing.T) {
	for name, r := range payhook(t, map[string]any{"protectBus": false}).Resources {
		if r.Type == "AWS::Events::EventBusPolicy" {
			t.Errorf("%s is there", name)
		}
	}
}
