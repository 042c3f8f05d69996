package stack

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
)

// Resources returns the physical ids of a existing resources of a type, such as AWS::IAM::Role. DescribeStackResources
// would return only 100 resources of all types:
// https://docs.aws.amazon.com/AWSCloudFormation/latest/APIReference/API_DescribeStackResources.html
func Resources(ctx context.Context, client cloudformation.ListStackResourcesAPIClient, stack,
	ofType string) (ids []string, err error) {
	pages := cloudformation.NewListStackResourcesPaginator(client,
		&cloudformation.ListStackResourcesInput{StackName: &stack})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, r := range page.StackResourceSummaries {
			id := aws.ToString(r.PhysicalResourceId) // "" if it was not created
			gone := r.ResourceStatus == types.ResourceStatusDeleteComplete
			if aws.ToString(r.ResourceType) == ofType && id != "" && !gone {
				ids = append(ids, id)
			}
		}
	}
	return ids, nil
}
