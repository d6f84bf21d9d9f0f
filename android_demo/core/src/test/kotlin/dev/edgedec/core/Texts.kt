package dev.edgedec.core

import kotlin.random.Random

/** A text to decode on fake models, with options of every kind. */
class Example(random: Random) {
    private val eos = setOf(random.nextInt(200))
    val target = FakeModel(seed = random.nextLong(), sharpness = random.pick(1.0, 3.0), eosIds = eos)
    val draft = FakeModel(seed = random.nextLong(), like = target to random.pick(0.0, 0.5, 0.9, 1.0))
    // Few different tokens, so that lookup finds some.
    val prompt = random.tokens(random.nextInt(1, 40), random.nextInt(2, 16))
    val sampling = Sampling(
        temperature = random.pick(0.0, 0.0, 0.7, 1.3),
        topK = random.nextInt(-5, 8).coerceAtLeast(0),
        topP = random.pick(1.0, 1.0, 0.8),
        minP = random.pick(0.0, 0.0, 0.1),
        repetitionPenalty = random.pick(1.0, 1.0, 1.2),
        presencePenalty = random.pick(0.0, 0.0, 0.5),
        frequencyPenalty = random.pick(0.0, 0.0, 0.3),
        logitBias = if (random.nextInt(4) > 0) emptyMap() else mapOf(random.nextInt(16) to 1.5),
        seed = random.nextLong(),
    )
    val limit = random.nextInt(1, 40)
    val stops = List(maxOf(0, random.nextInt(-3, 3))) { random.letters(random.nextInt(2, 5)) }
    val capacity = prompt.size + random.nextInt(60)
    val draftCapacity = prompt.size + random.nextInt(60)
    val drafter = random.nextInt(4)
    val more = random.tokens(random.nextInt(1, 20), 16)
    private val lengthsSeed = random.nextLong()

    fun lengths(): Lengths = AnyLengths(Random(lengthsSeed))

    fun stop() = StopRule(target.eosIds, limit, stops, FakeStream())

    fun sampler(prompt: IntArray) = Sampler(sampling, target.vocabSize, prompt)

    fun drafter(draft: FakeModel = this.draft): DraftSource {
        val model by lazy { ModelDrafter(draft.open(draftCapacity)) }
        return when (drafter) {
            0 -> LookupDrafter()
            1 -> model
            2 -> HybridDrafter(LookupDrafter(), model)
            else -> ScriptedDrafter(prompt + Random(lengthsSeed).tokens(60, 16)) { it % 3 > 0 }
        }
    }
}

/** What came of a text. */
data class Decoded(val ids: List<Int>, val text: String, val reason: String?)

/** Decodes plainly, without the engine: a row, a draw, a token, until it ends. */
fun plain(one: Example, prompt: IntArray = one.prompt): Decoded {
    val sampler = one.sampler(prompt)
    val stop = one.stop()
    stop.limit(one.capacity - prompt.size + 1)
    val ids = ArrayList<Int>()
    while (stop.reason == null) {
        val token = sampler.draw(one.target.logits(sampler.history.slice()))
        val cut = stop.cut(intArrayOf(token))
        sampler.push(cut.tokens)
        ids += token
    }
    return Decoded(ids, stop.finish(), stop.reason)
}

/** Decodes greedily, with no more than a length. */
fun Engine.run(
    prompt: IntArray,
    maxNewTokens: Int,
    cancellation: Cancellation = Cancellation(),
    onTokens: (List<Emission>) -> Unit = {},
): Figures {
    val stop = StopRule(maxNewTokens = maxNewTokens)
    return run(prompt, Sampler(Sampling(), 16, prompt), stop, cancellation = cancellation, onTokens = onTokens)
}

/** Decodes with the engine; [emitted] gets its tokens as they come. */
fun Engine.decode(
    one: Example,
    prompt: IntArray = one.prompt,
    sampler: Sampler = one.sampler(prompt),
    cancellation: Cancellation = Cancellation(),
    emitted: MutableList<Emission> = ArrayList(),
): Pair<Decoded, Figures> {
    val stop = one.stop()
    val figures = run(prompt, sampler, stop, cancellation = cancellation) { emitted += it }
    return Decoded(emitted.map { it.token }, stop.finish(), stop.reason) to figures
}
