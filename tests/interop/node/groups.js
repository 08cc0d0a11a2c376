// The cases of tests/interop/group_cases.py that KafkaJS has.
'use strict';

const { withConsumer } = require('./client.js');

async function regex(topic) {
  const values = [];
  await withConsumer({ groupId: topic }, new RegExp(`^${topic}.*`), (consumer, done) => ({
    eachMessage: async ({ message }) => {
      values.push(message.value.toString());
      if (values.length === 3) {
        done();
      }
    },
  }));
  return { values };
}

module.exports = { regex };
