"""A small labelled set: what people said, and for each question the messages that answer it.

The questions are of the kinds that people ask of their history: in other words than it was said, and by the exact name
of a thing. Many messages are near a question without answering it; as in real histories, there are many orders,
tickets, versions and errors that differ in a number only.
"""

from __future__ import annotations

MESSAGES = """\
My parcel still has not arrived, the courier says it was left with a neighbour.
I would like my money back for the broken headphones.
The kettle stopped heating after two days.
Please change the delivery address to my office.
Your driver threw the box over the fence and the vase inside is in pieces.
The discount code SPRING24 is rejected at checkout.
I was charged twice for the same subscription in March.
How do I cancel my yearly plan before it renews?
The invoice shows the wrong tax number for our company.
Can you send the receipt again, I deleted the mail.
We moved to a bigger flat, so the sofa has to come to the new place.
My son spilled juice on the keyboard and now half of the keys are dead.
The screen flickers whenever the laptop runs on battery.
After the update the app crashes with ERR_CONN_RESET when I log in.
The server log says ORA-00942 right before the nightly import fails.
I get a NullPointerException in OrderMapper.toDto since yesterday.
The build fails because libssl.so.1.1 cannot be found.
Our Jenkins job release-nightly-7 hangs at the signing step.
The function parse_user_id returns None for guests.
Set HANSARD_CRASHES to 300 before you run the long tests.
The certificate of api.example.org expires on Friday.
Could you book a table for four on Saturday evening?
My wife is vegetarian, so nothing with meat please.
The doctor said that I should avoid dairy for a month.
I am allergic to peanuts, even traces are dangerous.
We will land in Lisbon at noon and need a ride to the hotel.
The flight to Oslo was cancelled because of the storm.
I prefer a window seat, I get sick in the middle of the cabin.
Do I need a visa to travel to Vietnam for two weeks?
My passport runs out in June.
The hike took six hours and my knees still hurt.
I ran my first marathon in under four hours.
The physiotherapist showed me exercises for my lower back.
I have trouble falling asleep and wake up at three every night.
My blood pressure was too high at the last check-up.
The dentist had to pull out two of my teeth.
Our cat had five kittens in the wardrobe.
The puppy chews on every shoe it finds.
The vet gave the dog an injection against rabies.
The tomatoes on the balcony have brown spots on their leaves.
It has not rained for weeks and the lawn is yellow.
The roof leaks above the children's bedroom.
The heating in the cellar makes a knocking noise at night.
The neighbours play the drums until midnight.
My landlord wants to raise the rent by a fifth.
I signed the lease for the studio near the station.
The bank turned down our mortgage application.
I want to put a little aside every month for my pension.
The euro fell against the dollar again this morning.
My salary arrives on the 25th, so please book the rent after that.
My boss praised the presentation in front of the whole team.
I handed in my notice and start at the new firm in May.
Two colleagues were laid off last week.
I am nervous about the interview tomorrow.
She teaches mathematics at the school in our village.
My daughter failed her driving test for the second time.
The exam covers chapters three to nine of the chemistry book.
He wrote his thesis about medieval trade routes.
I am learning to play the cello, the bow is the hardest part.
The orchestra played Mahler, and I cried in the last movement.
We watched a film about a lighthouse keeper who loses his mind.
The novel has eight hundred pages, and nothing happens in it.
The recipe needs half a litre of cream and a pinch of nutmeg.
The cake sank in the middle because I opened the oven too early.
The soup was far too salty.
The battery of the car was flat this morning, so I came by train.
Somebody scratched my vehicle in the underground garage.
The brakes squeal when it is wet.
Winter tyres are compulsory from November.
Petrol has become so expensive that I cycle to work.
The bus was so full that I had to wait for the next one.
My phone was stolen on the tram.
I forgot the PIN of my new credit card.
Somebody logged in to my account from another country.
My password must be reset, I am locked out.
The wifi in the meeting room is slow.
Turn the lights in the living room down at ten.
Remind me to water the plants on Sunday.
Our anniversary is on the ninth of August.
Grandma turns ninety next week and we plan a surprise.
The wedding is in a barn by a lake.
The baby kicks all night long.
We named our son after my grandfather.
The divorce was final in spring.
My best friend moved to Canada, and I miss her.
I was very sad when our old dog died.
Nothing gives me joy at the moment, and I just stay in bed.
I was furious when they gave my seat to somebody else.
Thank you, that was exactly what I needed.
Good morning!
See you tomorrow.
Let us talk about something else.
Yes, please go ahead.
No, that is not what I meant.
Could you say that in simpler words?
What is the weather like today?
The election results come in at eight this evening.
The river burst its banks and flooded the old town.
An earthquake woke us at five in the morning.
The telescope showed us the rings of Saturn.
Bees find their way home by the position of the sun.
The glacier has lost a third of its ice since my childhood.
Wind turbines were built on the hill behind our house.
The museum is closed on Mondays.
A queue went twice around the block for the new phone.
The painter mixed her own colours from plants.
Chess is too slow for me, I like table tennis.
Our team lost the final on penalties.
The swimming pool opens again in May.
The printer jams with every second sheet.
Order 8841-B was sent to the wrong warehouse.
Order 8814-B arrived with a missing screw.
Ticket INC0012345 is still open.
Ticket INC0012354 was closed without an answer.
Please deploy version 2.14.3 to staging only.
Version 2.13.4 broke the export.
The meeting with Dr. Aleksandra Wojciechowska is on Tuesday.
Mr. Okonkwo asked for the figures of the third quarter.
Frau Müller-Lüdenscheidt possesses the only key to the archive.
Use the branch feature/retry-budget for the fix.""".splitlines()

MESSAGES += [
    line
    for number in range(1, 31)
    for line in (
        f"Order {8800 + 37 * number % 97}-{'ACDE'[number % 4]} is on its way.",
        f"Ticket INC00{12400 + 17 * number} was moved to the next shift.",
        f"Version 2.{number}.{number % 5} is on the test machine.",
        f"The import failed again with ORA-{600 + 13 * number:05}.",
        f"The app shows ERR_{'ABCDEFGHIJ'[number % 10]}_{number} on start.",
    )
]

QUESTIONS: dict[str, list[str]] = {
    "the package did not get here": ["My parcel still has not arrived"],
    "reimbursement for faulty goods": ["I would like my money back"],
    "item damaged in transport": ["Your driver threw the box"],
    "billed two times": ["I was charged twice"],
    "end my annual membership": ["How do I cancel my yearly plan"],
    "dietary restrictions": ["My wife is vegetarian", "The doctor said that I should avoid dairy", "I am allergic"],
    "insomnia": ["I have trouble falling asleep"],
    "hypertension": ["My blood pressure"],
    "signs of depression": ["Nothing gives me joy"],
    "back pain": ["The physiotherapist showed me"],
    "automobile trouble": ["The battery of the car", "Somebody scratched my vehicle", "The brakes squeal"],
    "quitting a job": ["I handed in my notice"],
    "employees fired": ["Two colleagues were laid off"],
    "home loan refused": ["The bank turned down"],
    "saving for retirement": ["I want to put a little aside"],
    "pet vaccination": ["The vet gave the dog"],
    "newborn animals": ["Our cat had five kittens"],
    "noise from next door": ["The neighbours play the drums"],
    "hacked account": ["Somebody logged in to my account"],
    "cannot sign in any more": ["My password must be reset"],
    "airport transfer": ["We will land in Lisbon"],
    "identity document expires": ["My passport runs out"],
    "baking went wrong": ["The cake sank"],
    "musical instrument lessons": ["I am learning to play the cello"],
    "natural disaster": ["The river burst its banks", "An earthquake woke us"],
    "climate change": ["The glacier has lost"],
    "renewable energy": ["Wind turbines"],
    "astronomy": ["The telescope showed us"],
    "restaurant reservation": ["Could you book a table"],
    "liquid damage on a computer": ["My son spilled juice"],
    "ERR_CONN_RESET": ["After the update the app crashes"],
    "ORA-00942": ["The server log says"],
    "OrderMapper": ["I get a NullPointerException"],
    "libssl": ["The build fails because"],
    "release-nightly": ["Our Jenkins job"],
    "user id guests": ["The function parse_user_id"],
    "HANSARD_CRASHES": ["Set HANSARD_CRASHES"],
    "SPRING24": ["The discount code"],
    "8841-B": ["Order 8841-B"],
    "INC0012345": ["Ticket INC0012345"],
    "2.14.3": ["Please deploy version 2.14.3"],
    "Wojciechowska": ["The meeting with Dr."],
    "Okonkwo quarter": ["Mr. Okonkwo"],
    "Mueller archive": ["Frau Müller"],
    "retry-budget": ["Use the branch feature"],
    "api.example.org": ["The certificate of"],
}


def answers(question: str) -> list[str]:
    """The whole messages that answer it."""
    return [next(each for each in MESSAGES if each.startswith(start)) for start in QUESTIONS[question]]
