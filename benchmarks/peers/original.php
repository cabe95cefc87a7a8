<?php declare(strict_types=1);
// The original codec of the protocol (php-mq/protocol), as its own server uses it.
//
//     php original.php CHECKOUT
//
// Its input begins with a line that says how many bytes of Dispatches follow it. For each line behind them, "decode" or
// "encode", it does that to all of them and answers how many there were. To "check" it answers whether they are the same
// bytes when they are encoded again.

use PHPMQ\Protocol\Constants\PacketLength;
use PHPMQ\Protocol\Constants\PacketType;
use PHPMQ\Protocol\Interfaces\IdentifiesMessage;
use PHPMQ\Protocol\Interfaces\IdentifiesQueue;
use PHPMQ\Protocol\Messages\MessageServerToClient;
use PHPMQ\Protocol\Traits\StringRepresenting;
use PHPMQ\Protocol\Types\MessageHeader;
use PHPMQ\Protocol\Types\PacketHeader;

[, $checkout] = $argv;

spl_autoload_register(static function (string $class) use ($checkout): void {
    require $checkout . '/src/' . str_replace('\\', '/', substr($class, strlen('PHPMQ\\Protocol\\'))) . '.php';
});

// The protocol leaves ids and queue names to those who use it.
trait Text
{
    use StringRepresenting;

    public function __construct(private string $text)
    {
    }

    public function toString(): string
    {
        return $this->text;
    }
}

final class Id implements IdentifiesMessage
{
    use Text;

    public function equals(IdentifiesMessage $other): bool
    {
        return $this->text === $other->toString();
    }
}

final class Queue implements IdentifiesQueue
{
    use Text;

    public function equals(IdentifiesQueue $other): bool
    {
        return $this->text === $other->toString();
    }
}

/** @return iterable<MessageServerToClient> */
function messages(string $bytes): iterable
{
    $offset = 0;
    while ($offset < strlen($bytes)) {
        $header = MessageHeader::fromString(substr($bytes, $offset, PacketLength::MESSAGE_HEADER));
        $offset += PacketLength::MESSAGE_HEADER;
        $contents = [];
        for ($left = $header->getMessageType()->getPacketCount(); $left > 0; $left--) {
            $packet = PacketHeader::fromString(substr($bytes, $offset, PacketLength::PACKET_HEADER));
            $offset += PacketLength::PACKET_HEADER;
            $contents[$packet->getPacketType()] = substr($bytes, $offset, $packet->getContentLength());
            $offset += $packet->getContentLength();
        }
        yield new MessageServerToClient(
            new Id($contents[PacketType::MESSAGE_ID]),
            new Queue($contents[PacketType::QUEUE_NAME]),
            $contents[PacketType::MESSAGE_CONTENT],
            (int)$contents[PacketType::TTL],
        );
    }
}

$bytes = stream_get_contents(STDIN, (int)fgets(STDIN));
$messages = iterator_to_array(messages($bytes), false);

while (($line = fgets(STDIN)) !== false) {
    if (trim($line) === 'check') {
        echo implode('', array_map('strval', $messages)) === $bytes ? 'same' : 'different', "\n";
        continue;
    }
    $count = 0;
    if (trim($line) === 'decode') {
        foreach (messages($bytes) as $message) {
            $count++;
        }
    } else {
        foreach ($messages as $message) {
            $frame = $message->toString();
            $count++;
        }
    }
    echo $count, "\n";
}
