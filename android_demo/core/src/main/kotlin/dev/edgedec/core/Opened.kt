package dev.edgedec.core

import java.io.File

/** An opened bundle: its models, one session of each, and what is learnt from text to text. */
internal class Opened private constructor(
    val about: About,
    val tokenizer: Tokenizer,
    val target: OnnxModel,
    private val engine: Engine,
    private val measured: Lengths,
    private val model: ModelDrafter?,
    private val resources: Resources,
) : AutoCloseable {
    private val lookup = LookupDrafter()
    private val both = model?.let { HybridDrafter(lookup, it) }

    /** Decodes a text on this thread, and hands on the tokens of each round and what a cancelled text held back. */
    fun generate(
        request: Request,
        cancellation: Cancellation,
        onRest: (String) -> Unit = {},
        onTokens: (List<Emission>) -> Unit,
    ): Figures {
        val prompt = encode(request)
        val sampler = Sampler(request.sampling, target.vocabSize, prompt)
        val stop = StopRule(
            eosIds = if (request.ignoreEos) emptySet() else target.eosIds,
            maxNewTokens = request.maxNewTokens,
            stopStrings = request.stopStrings,
            stream = tokenizer.stream(prompt),
        )
        val lengths = request.draftLength?.let(::FixedLength) ?: measured
        val figures = engine.run(prompt, sampler, stop, source(request.drafter), lengths, cancellation, onTokens)
        stop.end().let { if (it.isNotEmpty()) onRest(it) }
        return figures
    }

    override fun close() = resources.close()

    private fun encode(request: Request): IntArray {
        val messages = request.messages ?: return tokenizer.encode(request.prompt)
        val chat = tokenizer.chat ?: throw InputException("this bundle has no chat template: give a prompt instead")
        return tokenizer.encode(chat.render(messages), addSpecialTokens = false)
    }

    private fun source(drafter: Drafter): DraftSource? = when (drafter) {
        Drafter.NONE -> null
        Drafter.LOOKUP -> lookup
        Drafter.MODEL -> model ?: throw InputException("this bundle has no draft model: draft by lookup instead")
        Drafter.AUTO -> both ?: lookup
    }

    companion object {
        /** Loads a bundle and measures its passes; [watched] may wrap the sessions, to time them. */
        fun open(folder: File, options: DecoderOptions, watched: (Session) -> Session = { it }): Opened {
            val begin = System.nanoTime()
            val resources = Resources()
            try {
                val bundle = Bundle.open(folder)
                val tokenizer = Tokenizer.load(bundle.target.tokenizer)
                val target = resources.add(load(bundle.target, options, options.batchInvariant))
                // A draft draws from the target's vocabulary, with its noise.
                val draft = bundle.draft
                    ?.takeIf { options.loadDraft && it.tokenizerHash == bundle.target.tokenizerHash }
                    ?.let { resources.add(load(it, options, batchInvariant = false)) }
                    ?.takeIf { it.vocabSize == target.vocabSize }
                val session = watched(resources.add(target.open(minOf(options.maxContext, target.maxContext))))
                val drafting = draft?.open(minOf(options.maxContext, draft.maxContext))
                    ?.let { watched(resources.add(it)) }
                val costs = Costs(PassTimes.measure(session), drafting?.let { PassTimes.measure(it) })
                val about = About(
                    folder = folder,
                    target = target.name,
                    draft = draft?.name,
                    chat = tokenizer.chat != null,
                    maxContext = session.capacity,
                    threads = target.threads,
                    openS = (System.nanoTime() - begin) / 1e9,
                    exact = target.batchInvariant,
                )
                val drafter = drafting?.let(::ModelDrafter)
                return Opened(about, tokenizer, target, Engine(session), MeasuredLengths(costs), drafter, resources)
            } catch (error: Throwable) {
                resources.close()
                throw error
            }
        }

        private fun load(role: Role, options: DecoderOptions, batchInvariant: Boolean?) =
            OnnxModel.load(role, options.threads, options.memory, batchInvariant)
    }
}

/** What to close, the newest first: sessions before their model. */
internal class Resources : AutoCloseable {
    private val opened = ArrayList<AutoCloseable>()

    fun <T : AutoCloseable> add(resource: T): T = resource.also { opened.add(it) }

    override fun close() {
        opened.asReversed().forEach { it.close() }
        opened.clear()
    }
}
