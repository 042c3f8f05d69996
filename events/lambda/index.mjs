export const handler = async (event) => {
  for (const { body } of event.Records) {
    const { detail } = JSON.parse(body, (key, value, { source }) => (typeof value === "number" ? source : value));
    console.log(detail.eventId, detail.eventData?.amount); // every number is a string
  }
};
