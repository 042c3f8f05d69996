package payhook

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"payhook.example/shared/names"
)

// newKeys creates the table in which all sandboxes of the webhook function share the
// service's public keys and the budget for fetching them.
//
// It is a cache. It is deleted with the stack, and the keys are fetched again.
func newKeys(scope constructs.Construct) awsdynamodb.TableV2 {
	return newTable(scope, "Keys", &awsdynamodb.TablePropsV2{
		PartitionKey:        attribute(names.KeysKey, awsdynamodb.AttributeType_STRING),
		TimeToLiveAttribute: jsii.String(names.KeysTTL),
		RemovalPolicy:       awscdk.RemovalPolicy_DESTROY,
	})
}
